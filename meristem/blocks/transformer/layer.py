"""Transformer layer: self-attention and feed-forward with residuals, pre-norm or post-norm."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.attention.multi_head import LayerKVCache, MultiHeadAttention, select_positions
from meristem.blocks.embeddings.value_embeddings import ExtraValues
from meristem.blocks.transformer.feed_forward import FeedForward

NormPosition = Literal["pre", "post"]


class TransformerLayer(nn.Module):
    """x + f(norm(x)) with pre-norm, norm(x + f(x)) with post-norm."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        norms: tuple[nn.Module, nn.Module],
        *,
        norm_position: NormPosition,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = norms
        self.norm_position, self.dropout = norm_position, dropout

    def forward(
        self,
        x: Tensor,
        mask: AttentionMask,
        cache: LayerKVCache | None = None,
        output_positions: Tensor | None = None,
        extra_values: ExtraValues | None = None,
    ) -> Tensor:
        """[B, T, D] → [B, T, D]; with flat output positions [N], only these are computed after attention → [N, D]."""
        residual = x if output_positions is None else select_positions(x, output_positions)
        if self.norm_position == "pre":
            attended = self.attention(self.attention_norm(x), mask, cache, output_positions, extra_values)
            x = residual + self._dropout(attended)
            return x + self._dropout(self.feed_forward(self.feed_forward_norm(x)))
        attended = self.attention(x, mask, cache, output_positions, extra_values)
        x = self.attention_norm(residual + self._dropout(attended))
        return self.feed_forward_norm(x + self._dropout(self.feed_forward(x)))  # type: ignore[no-any-return]  # nn.Module.__call__

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x
