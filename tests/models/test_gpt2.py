from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from meristem.interfaces.backbone import Head, Model
from meristem.models.gpt2 import GPT2, GPT2Settings

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
    config = GPT2Config(
        vocab_size=WORDS,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_inner=80,
        n_positions=20,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    settings = GPT2Settings(layers=3, hidden_size=32, heads=4, ffn_size=80, max_length=20)
    our_model = Model(GPT2(settings, WORDS), {"clm": Head("vocabulary")}).to(dtype)
    pairs = {
        "backbone.embed.tokens.weight": "transformer.wte.weight",
        "backbone.embed.positions.weight": "transformer.wpe.weight",
        "backbone.stack.final_norm.weight": "transformer.ln_f.weight",
        "backbone.stack.final_norm.bias": "transformer.ln_f.bias",
    }
    for number in range(3):
        for our_name, their_name in NAMES.items():
            for kind in ("weight", "bias"):
                pairs[f"backbone.stack.layers.{number}.{our_name}.{kind}"] = (
                    f"transformer.h.{number}.{their_name}.{kind}"
                )
    return our_model, GPT2LMHeadModel(config).to(dtype), pairs


def upright(name: str, tensor: Tensor) -> Tensor:
    """Their linear maps are stored lying down."""
    return tensor.t() if ".h." in name and tensor.ndim == 2 else tensor


def test_the_same_as_transformers(
    dtype: torch.dtype, close: Close, ragged: tuple[Tensor, Tensor], randomised: Callable[[nn.Module], None]
) -> None:
    tokens, present = ragged
    our_model, other, pairs = build_both(dtype)
    randomised(other)
    our_parameters, their_parameters = dict(our_model.named_parameters()), dict(other.named_parameters())
    assert set(pairs) == set(our_parameters)
    assert set(pairs.values()) == set(their_parameters)
    with torch.no_grad():
        for name, parameter in our_parameters.items():
            parameter.copy_(upright(pairs[name], their_parameters[pairs[name]]))
    ours = our_model.heads["clm"](our_model.backbone(tokens=tokens, present=present).last_hidden_state[present])
    theirs = other(input_ids=tokens, attention_mask=present.long()).logits[present]
    close(ours, theirs)
    weight = torch.randn(ours.shape, dtype=dtype) / 50
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    for name, parameter in our_parameters.items():
        close(parameter.grad, upright(pairs[name], their_parameters[pairs[name]].grad))


@pytest.mark.parametrize("length", [1, 3, 11])
def test_the_same_with_incremental_decoding(close: Close, length: int, dtype: torch.dtype) -> None:
    our_model, _, _ = build_both(dtype)
    our_model.requires_grad_(False)
    tokens = torch.randint(WORDS, (2, length))
    state, parts = our_model.backbone.incremental_decoder().init_state(2, length), []
    for index in range(length):
        hidden = our_model.backbone(tokens=tokens[:, index : index + 1], state=state)
        state = hidden.state
        parts.append(hidden.last_hidden_state)
    close(torch.cat(parts, 1), our_model.backbone(tokens=tokens).last_hidden_state)


def test_gpt2_small_has_its_published_parameters() -> None:
    with torch.device("meta"):
        model = Model(GPT2(GPT2Settings(), 50_257), {"clm": Head("vocabulary")})
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def test_forty_eight_layers_train() -> None:
    """GPT-2 XL's depth: five steps at its own initialisation stay finite and go down."""
    torch.manual_seed(0)
    model = Model(
        GPT2(GPT2Settings(layers=48, hidden_size=16, heads=2, max_length=16), WORDS), {"clm": Head("vocabulary")}
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(WORDS, (2, 13))
    losses = []
    for _ in range(5):
        hidden = model.backbone(tokens=tokens[:, :-1])
        total = (
            model.heads["clm"].compute_loss(hidden.last_hidden_state.flatten(0, 1), tokens[:, 1:].flatten()).total / 24
        )
        optimizer.zero_grad()
        total.backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())
        optimizer.step()
        losses.append(total.item())
    assert losses[-1] < losses[0]


def test_gpt3s_alternating_windows_are_a_setting() -> None:
    torch.manual_seed(0)
    model = GPT2(
        GPT2Settings(
            layers=4, hidden_size=16, heads=2, max_length=32, attention_window=4, attention_window_every=2, init_std=0.3
        ),
        WORDS,
    )
    tokens = torch.randint(WORDS, (1, 20))
    dense = GPT2(GPT2Settings(layers=4, hidden_size=16, heads=2, max_length=32, init_std=0.3), WORDS)
    dense.load_state_dict(model.state_dict())
    assert torch.allclose(
        model(tokens=tokens).last_hidden_state[:, :4], dense(tokens=tokens).last_hidden_state[:, :4], atol=1e-6
    )
    assert not torch.allclose(
        model(tokens=tokens).last_hidden_state[:, 4:], dense(tokens=tokens).last_hidden_state[:, 4:], atol=1e-4
    )
