"""Multi-head attention with fused QKV projection, grouped-query attention, rotary positions and a KV cache."""

# B batch, T queries, S keys, D hidden size, H heads, G key-value heads, C channels of one head

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.attention.materialized_attention import causal_mask, is_faster, materialized_attention
from meristem.blocks.attention.position_encoding import RotaryEmbedding
from meristem.blocks.embeddings.value_embeddings import ExtraValues
from meristem.blocks.fused_linear import FusedLinear

QK_NORM_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class LayerKVCache:
    """KV cache of one layer: slot p holds position p of its row."""

    keys: Tensor
    """[B, G, slots, C]"""
    values: Tensor
    positions: Tensor
    """[B, T] positions of the new tokens."""
    shared_start: int | None
    """First new position, where it is the same for all rows."""
    num_filled: int
    """Slots filled after this call."""

    def update(self, k_BGTC: Tensor, v_BGTC: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values into the cache; returns all keys and values so far [B, G, S, C]."""
        if self.shared_start is not None:
            span = slice(self.shared_start, self.shared_start + k_BGTC.shape[2])
            self.keys[:, :, span] = k_BGTC
            self.values[:, :, span] = v_BGTC
        else:
            index = self.positions[:, None, :, None].expand_as(k_BGTC)
            self.keys.scatter_(2, index, k_BGTC)
            self.values.scatter_(2, index, v_BGTC)
        return self.keys[:, :, : self.num_filled], self.values[:, :, : self.num_filled]


class ScaledDotProductAttention(nn.Module):
    """Base of self- and cross-attention: softmax(QKᵀ · scale)V for given queries, keys and values."""

    def __init__(
        self, hidden_size: int, num_heads: int, *, num_kv_heads: int | None, dropout: float, scale: float | None = None
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads or num_heads
        self.head_dim = hidden_size // num_heads
        self.dropout, self.scale = dropout, scale

    def attend(self, q_BHTC: Tensor, k_BGSC: Tensor, v_BGSC: Tensor, mask: AttentionMask) -> Tensor:
        """Attention output [B, T, D] with heads concatenated, before the output projection."""
        if mask.attention_weights is not None:
            attended = self._attend_with_weights(q_BHTC, k_BGSC, v_BGSC, mask)
        elif is_faster(q_BHTC, k_BGSC):
            attended = materialized_attention(
                q_BHTC,
                k_BGSC,
                v_BGSC,
                mask.additive_mask if not mask.is_causal else causal_mask(q_BHTC),
                self.head_dim**-0.5 if self.scale is None else self.scale,
                self.dropout if self.training else 0.0,
            )
        else:
            attended = F.scaled_dot_product_attention(
                q_BHTC,
                k_BGSC,
                v_BGSC,
                attn_mask=mask.additive_mask,
                is_causal=mask.is_causal,
                dropout_p=self.dropout if self.training else 0.0,
                scale=self.scale,
                enable_gqa=self.num_kv_heads != self.num_heads,
            )
        return attended.transpose(1, 2).flatten(2)

    def _attend_with_weights(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> Tensor:
        """Explicit attention, which appends its weights [B, H, T, S] to the mask's list, never to the module."""
        if self.num_kv_heads != self.num_heads:
            k, v = (t.repeat_interleave(self.num_heads // self.num_kv_heads, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * (self.head_dim**-0.5 if self.scale is None else self.scale)
        if mask.is_causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        if mask.additive_mask is not None:
            scores = scores + mask.additive_mask
        weights = scores.softmax(-1)
        if mask.attention_weights is not None:
            mask.attention_weights.append(weights)
        return F.dropout(weights, self.dropout, self.training) @ v


class MultiHeadAttention(ScaledDotProductAttention):
    """Self-attention softmax(QKᵀ/√C)V with H query heads and G ≤ H key-value heads."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        rotary: RotaryEmbedding | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        scale: float | None = None,
        qk_norm: bool = False,
    ) -> None:
        super().__init__(hidden_size, num_heads, num_kv_heads=num_kv_heads, dropout=dropout, scale=scale)
        self.rotary, self.qk_norm = rotary, qk_norm
        kv_size = self.num_kv_heads * self.head_dim
        self.project = FusedLinear(hidden_size, (num_heads * self.head_dim, kv_size, kv_size), bias=bias)
        self.output = nn.Linear(hidden_size, hidden_size, bias=bias)

    def forward(
        self,
        x_BTD: Tensor,
        mask: AttentionMask,
        cache: LayerKVCache | None = None,
        output_positions_N: Tensor | None = None,
        extra_values: ExtraValues | None = None,
    ) -> Tensor:
        """[B, T, D] → [B, T, D], or [N, D] at the given flat output positions."""
        positions = None if cache is None else cache.positions
        q_BHTC, k_BGTC, v_BGTC = self._split_heads(self.project(x_BTD), positions, extra_values)
        if cache is not None:
            k_BGTC, v_BGTC = cache.update(k_BGTC, v_BGTC)
        attended_BTD = self.attend(q_BHTC, k_BGTC, v_BGTC, mask)
        if output_positions_N is not None:
            attended_BTD = select_positions(attended_BTD, output_positions_N)
        output: Tensor = self.output(attended_BTD)
        return output

    def _split_heads(
        self, projected: Tensor, positions: Tensor | None, extra_values: ExtraValues | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch_size, num_tokens, _ = projected.shape
        h, g = self.num_heads, self.num_kv_heads
        heads = projected.view(batch_size, num_tokens, h + 2 * g, self.head_dim)
        # split rather than slices: its gradient is one concatenation, where each slice would fill a tensor with zeros
        if self.rotary is None and not self.qk_norm:
            q, k, v = torch.split(heads, [h, g, g], dim=2)
        else:
            query_key, v = torch.split(heads, [h + g, g], dim=2)
            q, k = torch.split(self.norm_and_rotate(query_key, positions), [h, g], dim=2)
        v = v if extra_values is None else extra_values.mix(v)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def norm_and_rotate(self, query_key_BTHC: Tensor, positions: Tensor | None) -> Tensor:
        """Queries and keys with the norm and the rotary positions that this attention has."""
        if self.qk_norm:
            query_key_BTHC = F.rms_norm(query_key_BTHC, (self.head_dim,), eps=QK_NORM_EPSILON)
        return query_key_BTHC if self.rotary is None else self.rotary(query_key_BTHC, positions)


def select_positions(x_BTD: Tensor, positions_N: Tensor) -> Tensor:
    """Hidden states at flat positions: [B, T, D] → [N, D]."""
    return x_BTD.flatten(0, 1).index_select(0, positions_N)
