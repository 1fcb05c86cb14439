from __future__ import annotations

import pytest
import torch
from torch import Tensor

from meristem.blocks.heads.task_heads import PredictionTransform
from meristem.models.modern import Modern, ModernSettings

WORDS = 61


def build_model(**settings: object) -> Modern:
    torch.manual_seed(0)
    kind = {
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "kv_heads": 2,
        "ffn_size": 48,
        "max_length": 20,
        "output_init": "normal",
        "init_std": 0.2,
    }
    return Modern(ModernSettings(**{**kind, **settings}), WORDS).double()  # type: ignore[arg-type]


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def rotate(x: Tensor, base: float = 10_000.0) -> Tensor:
    """Each pair (c, c + half) as a complex number, multiplied by e^(i·position·speed); x is [B, T, H, C]."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1])[:, None] * base ** (-torch.arange(half, dtype=x.dtype) / half)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)[None, :, None]
    return torch.cat([z.real, z.imag], -1)


def straightforward(model: Modern, tokens: Tensor, *, causal: bool) -> Tensor:
    """A Llama-like stack written out, with no part of ours in it."""
    x = model.embed.tokens.weight[tokens]
    rows, time, width = x.shape
    for layer in model.stack.layers:
        normed = rms(x, layer.attention_norm.weight)
        q, k, v = (normed @ layer.attention.project.weight.t()).split([32, 16, 16], -1)
        q, k = (rotate(t.view(rows, time, -1, 8)) for t in (q, k))
        k, v = (t.view(rows, time, 2, 8).repeat_interleave(2, 2) for t in (k, v))
        scores = torch.einsum("bthc,bshc->bhts", q, k) / 8**0.5
        if causal:
            scores = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -torch.inf)
        mixed = torch.einsum("bhts,bshc->bthc", scores.softmax(-1), v).reshape(rows, time, width)
        x = x + mixed @ layer.attention.output.weight.t()
        gate, value = (rms(x, layer.feed_forward_norm.weight) @ layer.feed_forward.widen.weight.t()).chunk(2, -1)
        x = x + (gate * torch.sigmoid(gate) * value) @ layer.feed_forward.narrow.weight.t()
    return rms(x, model.stack.final_norm.weight)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 7, 13])
def test_the_same_as_written_out(causal: bool, length: int) -> None:
    model, tokens = build_model(), torch.randint(WORDS, (2, length))
    hidden, expected = (
        model(tokens=tokens, causal=causal).last_hidden_state,
        straightforward(model, tokens, causal=causal),
    )
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)  # rotary tables are float32
    weight = torch.randn_like(hidden) / 20
    parameters = list(model.parameters())
    ours = torch.autograd.grad((hidden * weight).sum(), parameters)
    theirs = torch.autograd.grad((expected * weight).sum(), parameters)
    for actual, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, other, atol=1e-5, rtol=0)


def test_it_is_bidirectional_by_default() -> None:
    model, tokens = build_model(), torch.randint(WORDS, (1, 6))
    changed = tokens.clone()
    changed[0, -1] = (tokens[0, -1] + 1) % WORDS

    def reaches(causal: bool) -> float:
        first_hidden, other = (
            model(tokens=t, causal=causal).last_hidden_state[0, 0].detach() for t in (tokens, changed)
        )
        return float((first_hidden - other).abs().max())

    assert reaches(True) == 0
    assert reaches(False) > 0


def test_it_has_no_biases_and_no_positions_to_learn() -> None:
    assert not [name for name, _ in build_model().named_parameters() if "bias" in name or "positions" in name]


def test_a_transform_before_the_vocabulary_is_a_setting() -> None:
    assert build_model().build_head("vocabulary").transform is None
    assert isinstance(build_model(output_transform=True).build_head("vocabulary").transform, PredictionTransform)
