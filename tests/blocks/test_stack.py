from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from meristem.blocks.transformer.stack import StackSettings, TransformerStack


def build_stack(**settings: Any) -> TransformerStack:
    torch.manual_seed(0)
    stack = TransformerStack(
        StackSettings(**{"layers": 3, "hidden_size": 16, "heads": 4, "max_length": 32, "init_std": 0.3, **settings})
    )
    stack.init_weights()
    return stack.double().eval()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"position_encoding": "rotary"},
        {"kv_heads": 2, "position_encoding": "rotary"},
        {"attention_window": 3},
        {"attention_window": 3, "attention_window_every": 2},
        {"norm_position": "post"},
    ],
)
def test_a_kv_cache_gives_what_one_pass_gives(settings: dict[str, Any]) -> None:
    stack, x = build_stack(**settings), torch.randn(2, 9, 16, dtype=torch.float64)
    hidden_states = stack(x, causal=True).last_hidden_state
    state = stack.empty_cache(2, 9, x)
    parts = []
    for start, stop in ((0, 4), (4, 5), (5, 8), (8, 9)):
        hidden = stack(x[:, start:stop], causal=True, state=state)
        state = hidden.state
        parts.append(hidden.last_hidden_state)
    torch.testing.assert_close(torch.cat(parts, 1), hidden_states, atol=1e-12, rtol=0)
    assert state["next"].tolist() == [9, 9]


@pytest.mark.parametrize("settings", [{}, {"position_encoding": "rotary", "kv_heads": 1}, {"attention_window": 3}])
def test_rows_at_different_positions_share_a_kv_cache(settings: dict[str, Any]) -> None:
    stack, x = build_stack(**settings), torch.randn(2, 8, 16, dtype=torch.float64)
    hidden_states = stack(x, causal=True).last_hidden_state
    short = stack(x[1:, :3], causal=True, state=stack.empty_cache(1, 8, x)).state
    long = stack(x[:1, :5], causal=True, state=stack.empty_cache(1, 8, x)).state
    state = {key: torch.cat([long[key], short[key]]) for key in long}
    for step in range(3):
        new = torch.stack([x[0, 5 + step], x[1, 3 + step]])[:, None]
        hidden = stack(new, causal=True, state=state)
        state = hidden.state
        torch.testing.assert_close(hidden.last_hidden_state[0, 0], hidden_states[0, 5 + step], atol=1e-12, rtol=0)
        torch.testing.assert_close(hidden.last_hidden_state[1, 0], hidden_states[1, 3 + step], atol=1e-12, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"position_encoding": "rotary"}, {"norm_position": "post"}, {"layers": 1}])
def test_output_positions_equal_those_of_a_full_pass(settings: dict[str, Any]) -> None:
    stack, x = build_stack(**settings), torch.randn(3, 9, 16, dtype=torch.float64, requires_grad=True)
    present = torch.arange(9)[None] < torch.tensor([[9], [4], [7]])
    output_positions = torch.tensor([0, 5, 9, 12, 18, 24])
    selected, full = (
        stack(x, causal=False, present=present, **only) for only in ({"output_positions": output_positions}, {})
    )
    assert selected.last_hidden_state.shape == (6, 16)
    requested = torch.tensor([24, 0, 12])
    torch.testing.assert_close(selected.select(requested), full.select(requested), atol=1e-12, rtol=0)
    selected_gradient, all_ = (
        torch.autograd.grad(hidden.select(output_positions).square().sum(), x)[0] for hidden in (selected, full)
    )
    torch.testing.assert_close(selected_gradient, all_, atol=1e-12, rtol=0)


def test_padding_changes_nothing_for_other_tokens() -> None:
    for settings in ({}, {"attention_window": 2}, {"norm_position": "post", "position_encoding": "rotary"}):
        stack, x = build_stack(**settings), torch.randn(2, 9, 16, dtype=torch.float64)
        present = torch.tensor([[True] * 9, [True] * 4 + [False] * 5])
        hidden = stack(x, causal=False, present=present).last_hidden_state
        torch.testing.assert_close(
            hidden[1, :4], stack(x[1:, :4], causal=False).last_hidden_state[0], atol=1e-12, rtol=0
        )
        assert torch.isfinite(hidden).all()
        with_attention = stack(x, causal=False, present=present, want=("attention",))
        torch.testing.assert_close(with_attention.last_hidden_state[1, :4], hidden[1, :4], atol=1e-12, rtol=0)
        assert torch.isfinite(with_attention.last_hidden_state).all()


def test_documents_in_one_row_are_documents_in_two() -> None:
    stack, x = build_stack(), torch.randn(1, 9, 16, dtype=torch.float64)
    documents = torch.tensor([[0] * 4 + [1] * 5])
    for causal in (True, False):
        hidden = stack(x, causal=causal, documents=documents).last_hidden_state
        torch.testing.assert_close(hidden[:, :4], stack(x[:, :4], causal=causal).last_hidden_state, atol=1e-12, rtol=0)
        torch.testing.assert_close(hidden[:, 4:], stack(x[:, 4:], causal=causal).last_hidden_state, atol=1e-12, rtol=0)


def test_every_second_layer_may_have_a_window() -> None:
    """Information travels window − 1 tokens in each banded layer, and any distance in a dense one."""
    x = torch.randn(1, 12, 16, dtype=torch.float64, requires_grad=True)

    def reach(**settings: Any) -> int:
        (grad,) = torch.autograd.grad(build_stack(**settings)(x, causal=True).last_hidden_state[0, 11, 0], x)
        return 11 - int((grad[0].abs().sum(-1) > 0).nonzero()[0])

    assert reach(attention_window=3) == 6
    assert reach(attention_window=2) == 3
    assert reach(attention_window=2, attention_window_every=2) == 11


def test_only_requested_outputs_are_returned() -> None:
    stack, x = build_stack(), torch.randn(1, 5, 16, dtype=torch.float64)
    plain = stack(x, causal=False)
    assert plain.layers == ()
    assert plain.attention == ()
    outputs = stack(x, causal=False, want=("layers", "attention"))
    assert len(outputs.layers) == 4
    assert torch.equal(outputs.layers[0], x)
    torch.testing.assert_close(stack.final_norm(outputs.layers[-1]), outputs.last_hidden_state)
    assert [w.shape for w in outputs.attention] == [(1, 4, 5, 5)] * 3
    assert stack(x, causal=False).attention == ()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_checkpointing_changes_no_gradient(dropout: float) -> None:
    stack, x = build_stack(dropout=dropout).train(), torch.randn(2, 6, 16, dtype=torch.float64)
    gradients = []
    for recompute in (False, True):
        stack.recompute = recompute
        stack.zero_grad()
        torch.manual_seed(5)
        stack(x, causal=True).last_hidden_state.pow(2).sum().backward()
        gradients.append([p.grad.clone() for p in stack.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(list(stack.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_residual_projections_are_initialized_as_set() -> None:
    normal, scaled, zero = (
        build_stack(output_init=kind).layers[0].feed_forward.narrow.weight for kind in ("normal", "scaled", "zero")
    )
    torch.testing.assert_close(scaled, normal / 6**0.5)
    assert zero.abs().max() == 0
    x = torch.randn(1, 4, 16, dtype=torch.float64)
    torch.testing.assert_close(
        build_stack(output_init="zero")(x, causal=False).last_hidden_state, build_stack().final_norm(x)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 16, "heads": 5}, "heads: 5 does not divide a hidden size of 16; 4 does"),
        ({"kv_heads": 3}, "kv_heads: 3 key-value heads do not divide 4 heads"),
        ({"hidden_size": 12, "position_encoding": "rotary"}, "rotary needs an even number of channels per head, not 3"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        build_stack(**settings)
