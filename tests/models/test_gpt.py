from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from meristem.interfaces.backbone import Head, Model
from meristem.models.gpt import GPT, GPTSettings

WORDS = 61
NAMES = {
    "attention.project": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "attention_norm": "ln_1",
    "feed_forward.widen": "mlp.c_fc",
    "feed_forward.narrow": "mlp.c_proj",
    "feed_forward_norm": "ln_2",
}
Close = Callable[[Tensor, Tensor], None]


def build_both(dtype: torch.dtype) -> tuple[Model, nn.Module, dict[str, str]]:
    config = OpenAIGPTConfig(
        vocab_size=WORDS,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_positions=20,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    settings = GPTSettings(layers=3, hidden_size=32, heads=4, max_length=20)
    our_model = Model(GPT(settings, WORDS), {"clm": Head("vocabulary")}).to(dtype)
    pairs = {
        "backbone.embed.tokens.weight": "transformer.tokens_embed.weight",
        "backbone.embed.positions.weight": "transformer.positions_embed.weight",
    }
    for number in range(3):
        for our_name, their_name in NAMES.items():
            for kind in ("weight", "bias"):
                pairs[f"backbone.stack.layers.{number}.{our_name}.{kind}"] = (
                    f"transformer.h.{number}.{their_name}.{kind}"
                )
    return our_model, OpenAIGPTLMHeadModel(config).to(dtype), pairs


def upright(name: str, tensor: Tensor) -> Tensor:
    """Their linear maps are stored lying down."""
    return tensor.t() if ".h." in name and tensor.ndim == 2 else tensor


def alike(dtype: torch.dtype, randomised: Callable[[nn.Module], None]) -> tuple[Model, nn.Module, dict[str, str]]:
    our_model, other, pairs = build_both(dtype)
    randomised(other)
    our_parameters, their_parameters = dict(our_model.named_parameters()), dict(other.named_parameters())
    assert set(pairs) == set(our_parameters)
    assert set(pairs.values()) == set(their_parameters)
    with torch.no_grad():
        for name, parameter in our_parameters.items():
            parameter.copy_(upright(pairs[name], their_parameters[pairs[name]]))
    return our_model, other, pairs


def agree(our_model: nn.Module, other: nn.Module, pairs: dict[str, str], close: Close) -> None:
    their_parameters = dict(other.named_parameters())
    for name, parameter in our_model.named_parameters():
        close(parameter.grad, upright(pairs[name], their_parameters[pairs[name]].grad))


def test_the_same_as_transformers(
    dtype: torch.dtype, close: Close, ragged: tuple[Tensor, Tensor], randomised: Callable[[nn.Module], None]
) -> None:
    tokens, present = ragged
    our_model, other, pairs = alike(dtype, randomised)
    ours = our_model.heads["clm"](our_model.backbone(tokens=tokens, present=present).last_hidden_state[present])
    theirs = other(input_ids=tokens, attention_mask=present.long()).logits[present]
    close(ours, theirs)
    weight = torch.randn(ours.shape, dtype=dtype) / 50
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    agree(our_model, other, pairs, close)


@pytest.mark.parametrize("length", [2, 5, 13])
def test_the_same_causal_loss_and_gradients(
    dtype: torch.dtype, close: Close, length: int, randomised: Callable[[nn.Module], None]
) -> None:
    our_model, other, pairs = alike(dtype, randomised)
    tokens = torch.randint(WORDS, (4, length))
    hidden = our_model.backbone(tokens=tokens[:, :-1], causal=True)
    total = our_model.heads["clm"].compute_loss(
        hidden.last_hidden_state.flatten(0, 1), tokens[:, 1:].flatten()
    ).total / (4 * (length - 1))
    logits = other(input_ids=tokens).logits[:, :-1]  # their own loss is always in single precision
    theirs = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    close(total, theirs)
    total.backward()
    theirs.backward()
    agree(our_model, other, pairs, close)


@pytest.mark.parametrize("length", [1, 3, 11])
def test_the_same_with_incremental_decoding(
    close: Close, length: int, dtype: torch.dtype, randomised: Callable[[nn.Module], None]
) -> None:
    """The writer's own steps, which generation takes, against the whole text read at once by transformers."""
    our_model, other, _ = alike(dtype, randomised)
    our_model.requires_grad_(False)
    tokens = torch.randint(WORDS, (2, length))
    writer = our_model.backbone.incremental_decoder()
    last, state = writer.prefill(tokens[:, :1], torch.ones(2, dtype=torch.long), writer.init_state(2, length))
    parts: list[Any] = [last]
    for index in range(1, length):
        last, state = writer.decode_step(tokens[:, index], state, index)
        parts.append(last)
    close(our_model.heads["clm"](torch.stack(parts, 1)), other(input_ids=tokens).logits)


def test_gpt1_has_its_published_parameters() -> None:
    with torch.device("meta"):
        model = Model(GPT(GPTSettings(), 40_478), {"clm": Head("vocabulary")})
    assert sum(p.numel() for p in model.parameters()) == 116_534_784


def test_it_is_post_norm_without_a_final_norm() -> None:
    model = GPT(GPTSettings(layers=2, hidden_size=16, heads=2, max_length=8), WORDS)
    assert all(layer.norm_position == "post" for layer in model.stack.layers)
    assert isinstance(model.stack.final_norm, nn.Identity)
    last = model(tokens=torch.tensor([[1, 2, 3]])).last_hidden_state
    torch.testing.assert_close(last.mean(-1), torch.zeros(1, 3), atol=1e-5, rtol=0)
