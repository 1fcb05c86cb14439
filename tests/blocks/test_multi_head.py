from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from meristem.blocks.attention.attention_mask import AttentionMask, MaskSpec
from meristem.blocks.attention.multi_head import MultiHeadAttention
from meristem.blocks.attention.position_encoding import RotaryEmbedding


def build_attention(groups: int | None = None, *, rotary: bool = False, dropout: float = 0.0) -> MultiHeadAttention:
    torch.manual_seed(0)
    turn = RotaryEmbedding(32, 8) if rotary else None
    return MultiHeadAttention(32, 4, num_kv_heads=groups, rotary=turn, dropout=dropout).double()


def build_mask(time: int, **facts: object) -> AttentionMask:
    window = facts.pop("window", None)
    kind = {
        "num_queries": time,
        "num_keys": time,
        "dtype": torch.float64,
        "device": torch.device("cpu"),
        "causal": False,
    }
    return MaskSpec(**{**kind, **facts}).build_mask(window)  # type: ignore[arg-type]


def by_hand(attention: MultiHeadAttention, x: Tensor, visible: Tensor) -> Tensor:
    """Head by head and position by position, from the definition."""
    rows, time, _ = x.shape
    c, out = attention.head_dim, torch.zeros_like(x)
    q, k, v = attention.project(x).split(
        [attention.num_heads * c, attention.num_kv_heads * c, attention.num_kv_heads * c], -1
    )
    for row in range(rows):
        for head in range(attention.num_heads):
            group = head // (attention.num_heads // attention.num_kv_heads)
            qs = q[row, :, head * c : (head + 1) * c]
            ks, vs = (t[row, :, group * c : (group + 1) * c] for t in (k, v))
            for index in range(time):
                visible_keys = visible[row, index].nonzero()[:, 0]
                share = torch.softmax(ks[visible_keys] @ qs[index] / c**0.5, 0)
                out[row, index, head * c : (head + 1) * c] = share @ vs[visible_keys]
    return attention.output(out)


@pytest.mark.parametrize("groups", [None, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_its_definition(groups: int | None, causal: bool) -> None:
    attention, x = build_attention(groups), torch.randn(2, 7, 32, dtype=torch.float64)
    visible = torch.ones(2, 7, 7, dtype=torch.bool)
    visible = visible.tril() if causal else visible
    torch.testing.assert_close(
        attention(x, build_mask(7, causal=causal)), by_hand(attention, x, visible), atol=1e-12, rtol=0
    )


def test_masks_of_every_kind_are_obeyed() -> None:
    attention, x = build_attention(2), torch.randn(2, 6, 32, dtype=torch.float64)
    present = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    documents = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0]])
    mask = build_mask(6, causal=True, window=3, present=present, documents=documents)
    positions = torch.arange(6)
    in_window = (positions[:, None] - positions < 3) & (positions[:, None] >= positions)
    visible = in_window & present[:, None, :] & (documents[:, :, None] == documents[:, None, :])
    visible |= torch.eye(6, dtype=torch.bool)
    torch.testing.assert_close(attention(x, mask), by_hand(attention, x, visible), atol=1e-12, rtol=0)


@pytest.mark.parametrize("groups", [None, 2])
def test_returned_attention_weights_sum_to_one_and_change_nothing(groups: int | None) -> None:
    attention, x = build_attention(groups, rotary=True), torch.randn(2, 5, 32, dtype=torch.float64)
    mask = build_mask(5, causal=True)
    fast = attention(x, mask)
    recorded: list[Tensor] = []
    torch.testing.assert_close(attention(x, replace(mask, attention_weights=recorded)), fast, atol=1e-12, rtol=0)
    (weights,) = recorded
    assert weights.shape == (2, 4, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5, dtype=torch.float64))
    assert weights.triu(1).abs().max() == 0


def test_grouped_heads_are_heads_whose_keys_are_repeated() -> None:
    grouped, full, x = build_attention(2), build_attention(), torch.randn(2, 7, 32, dtype=torch.float64)
    q, k, v = grouped.project.weight.split([32, 16, 16])
    repeat = [torch.cat([t[:8], t[:8], t[8:], t[8:]]) for t in (k, v)]
    bias = grouped.project.bias.split([32, 16, 16])
    with torch.no_grad():
        full.project.weight.copy_(torch.cat([q, *repeat]))
        full.project.bias.copy_(torch.cat([bias[0], *(torch.cat([b[:8], b[:8], b[8:], b[8:]]) for b in bias[1:])]))
        full.output.load_state_dict(grouped.output.state_dict())
    torch.testing.assert_close(grouped(x, AttentionMask()), full(x, AttentionMask()), atol=1e-12, rtol=0)


def test_dropout_acts_in_training_only() -> None:
    attention, x = build_attention(dropout=0.5), torch.randn(1, 6, 32, dtype=torch.float64)
    assert not torch.equal(attention(x, AttentionMask()), attention(x, AttentionMask()))
    attention.eval()
    assert torch.equal(attention(x, AttentionMask()), attention(x, AttentionMask()))
