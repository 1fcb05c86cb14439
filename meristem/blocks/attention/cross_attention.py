"""Cross-attention: queries from the decoder, keys and values from the encoder output."""

# B batch, T queries, S source positions, D hidden size, H heads, G key-value heads, C channels of one head

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.attention.multi_head import ScaledDotProductAttention
from meristem.blocks.fused_linear import FusedLinear


class CrossAttention(ScaledDotProductAttention):
    """Multi-head cross-attention; keys and values of the source are projected once and reused for every query."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__(hidden_size, num_heads, num_kv_heads=num_kv_heads, dropout=dropout, scale=scale)
        self.query = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.source = FusedLinear(hidden_size, (self.num_kv_heads * self.head_dim,) * 2, bias=bias)
        self.output = nn.Linear(hidden_size, hidden_size, bias=bias)

    def project_source(self, source_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, G, S, C] of a source."""
        key_value = self.source(source_BSD).view(*source_BSD.shape[:2], 2 * self.num_kv_heads, self.head_dim)
        k, v = torch.split(key_value, self.num_kv_heads, dim=2)
        return k.transpose(1, 2), v.transpose(1, 2)

    def forward(self, x_BTD: Tensor, keys_values: tuple[Tensor, Tensor], mask: AttentionMask) -> Tensor:
        """[B, T, D] → [B, T, D]."""
        q_BHTC = self.query(x_BTD).view(*x_BTD.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
        return self.output(self.attend(q_BHTC, *keys_values, mask))  # type: ignore[no-any-return]  # nn.Module.__call__
