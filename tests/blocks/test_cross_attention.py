from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.attention.cross_attention import CrossAttention
from meristem.blocks.transformer.decoder import source_attention_mask


def test_the_same_as_torchs_multihead_attention() -> None:
    torch.manual_seed(0)
    attention = CrossAttention(16, 4).double()
    other = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.cat([attention.query.weight, attention.source.weight]))
        other.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.source.bias]))
        other.out_proj.load_state_dict(attention.output.state_dict())
    x, source = torch.randn(2, 3, 16, dtype=torch.float64), torch.randn(2, 5, 16, dtype=torch.float64)
    present = torch.tensor([[True] * 5, [True, True, False, False, False]])
    expected, weights = other(x, source, source, key_padding_mask=~present, average_attn_weights=False)
    mask = source_attention_mask(present, torch.float64)
    torch.testing.assert_close(attention(x, attention.project_source(source), mask), expected, atol=1e-12, rtol=0)
    recorded: list[Tensor] = []
    mask = replace(mask, attention_weights=recorded)
    torch.testing.assert_close(attention(x, attention.project_source(source), mask), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(recorded[0], weights, atol=1e-12, rtol=0)


def test_grouped_keys_are_shared_and_the_scale_is_used() -> None:
    torch.manual_seed(0)
    x, source = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    grouped = CrossAttention(16, 4, num_kv_heads=2, scale=1.0)
    cross_attention = CrossAttention(16, 4, scale=1.0)
    with torch.no_grad():
        cross_attention.load_state_dict(
            {
                **grouped.state_dict(),
                "source.weight": _spread(grouped.source.weight),
                "source.bias": _spread(grouped.source.bias[:, None])[:, 0],
            }
        )
    expected = grouped(x, grouped.project_source(source), AttentionMask())
    torch.testing.assert_close(cross_attention(x, cross_attention.project_source(source), AttentionMask()), expected)
    cross_attention.scale = None
    assert not torch.allclose(
        cross_attention(x, cross_attention.project_source(source), AttentionMask()), expected, atol=1e-3
    )


def _spread(rows: torch.Tensor) -> torch.Tensor:
    """Each group's four channels repeated for both of its heads."""
    return rows.view(4, 4, -1).repeat_interleave(2, 0).flatten(0, 1)


def test_no_mask_is_made_where_nothing_is_padded() -> None:
    assert source_attention_mask(None, torch.float32).additive_mask is None
