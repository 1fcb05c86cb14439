"""Relative-position attention of Transformer-XL and XLNet (Dai et al. 2019, §3.3)."""

# B batch, T queries, S keys, L distances, D hidden size, H heads, C channels of one head
#
# score(i, j) = (q_i + u)·k_j + (q_i + v)·r_{i−j}, and with segments + (q_i + s)·e_{same or other}

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.fused_linear import FusedLinear


class RelativeShift(Protocol):
    """Relative shift: scores indexed by distance → scores indexed by key."""

    def shift(self, scores_HBTL: Tensor, num_keys: int) -> Tensor:
        """[H, B, T, L] → [H, B, T, S]: each query's own window of distances."""

    def unshift(self, grad_HBTS: Tensor, num_distances: int) -> Tensor:
        """Gradient of `shift`: [H, B, T, S] → [H, B, T, L], zero at unused distances."""


class ContiguousShift:
    """Relative shift for queries at the last T of the S keys, in order: a view without a copy.

    Distances fall from S − 1, so query i finds key j at index T − 1 − i + j of its row. In flat memory the window of
    each query starts L − 1 after that of the query before it, which is a view with rows of length L − 1.
    """

    def shift(self, scores_HBTL: Tensor, num_keys: int) -> Tensor:
        """The shifted scores, as a view."""
        num_heads, batch_size, num_tokens, num_distances = scores_HBTL.shape
        flat = scores_HBTL.view(num_heads, batch_size, num_tokens * num_distances)[
            ..., num_tokens - 1 : num_tokens * num_distances - 1
        ]
        return flat.view(num_heads, batch_size, num_tokens, num_distances - 1)[..., :num_keys]

    def unshift(self, grad_HBTS: Tensor, num_distances: int) -> Tensor:
        """Gradient by one copy into the same view of zeros."""
        scores = grad_HBTS.new_zeros(*grad_HBTS.shape[:3], num_distances)
        self.shift(scores, grad_HBTS.shape[3]).copy_(grad_HBTS)
        return scores


@dataclass(frozen=True)
class IndexedShift:
    """Relative shift for queries at arbitrary positions, by an explicit index."""

    index: Tensor
    """[1, B, T, S] index of each key's distance."""

    @classmethod
    def from_positions(cls, positions_BT: Tensor, num_tokens: int, num_keys: int) -> IndexedShift:
        """Shift for queries at these positions among the last `num_tokens` keys."""
        first_BT = num_tokens - 1 - positions_BT
        return cls((first_BT[:, :, None] + torch.arange(num_keys, device=positions_BT.device))[None])

    def shift(self, scores_HBTL: Tensor, num_keys: int) -> Tensor:
        """The shifted scores by a gather; there are few such queries."""
        return scores_HBTL.gather(3, self.index.expand(len(scores_HBTL), -1, -1, -1))

    def unshift(self, grad_HBTS: Tensor, num_distances: int) -> Tensor:
        """Gradient by a scatter; no query uses a distance twice."""
        scores = grad_HBTS.new_zeros(*grad_HBTS.shape[:3], num_distances)
        return scores.scatter_(3, self.index.expand(len(grad_HBTS), -1, -1, -1), grad_HBTS)


@dataclass(frozen=True, kw_only=True)
class RelativeMask:
    """Attention mask and relative shift of one stream's queries; the same for every layer."""

    shift: RelativeShift
    masked: Tensor | None = None
    """[B or 1, T, S] true where a key is masked."""
    fully_masked: Tensor | None = None
    """[B, T] true where all keys of a query are masked; None where that cannot happen."""
    different_segment: Tensor | None = None
    """[B, T, S] 1 where query and key belong to different segments."""


class RelativeAttentionBiases(nn.Module):
    """Query-independent biases [H, C] of Transformer-XL and XLNet: u (content), v (distance), s (segments)."""

    def __init__(self, num_heads: int, head_dim: int, *, segments: bool = False) -> None:
        super().__init__()
        self.content = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.distance = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.segment = nn.Parameter(torch.zeros(num_heads, head_dim)) if segments else None


class RelativeAttention(nn.Module):
    """Relative-position attention; keys and values are projected once and shared by all query streams."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        biases: RelativeAttentionBiases,
        *,
        num_segments: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = num_heads, hidden_size // num_heads, dropout
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key_value = FusedLinear(hidden_size, (hidden_size, hidden_size), bias=False)
        self.relative = nn.Linear(hidden_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)
        self.biases = biases
        self.segments = nn.Parameter(torch.zeros(num_segments, num_heads, self.head_dim)) if num_segments else None

    def project_keys_values(self, context_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [H, B, S, C] of memory and tokens."""
        batch_size, num_tokens, _ = context_BSD.shape
        key_value = (
            self.key_value(context_BSD)
            .view(batch_size, num_tokens, 2, self.num_heads, self.head_dim)
            .permute(2, 3, 0, 1, 4)
        )
        k, v = key_value.contiguous().unbind(0)
        return k, v

    def project_distances(self, positions_XLD: Tensor) -> Tensor:
        """Keys [H, X, L, C] of distances; X is 1 or the batch size."""
        num_rows, num_distances, _ = positions_XLD.shape
        projected = self.relative(positions_XLD).view(num_rows, num_distances, self.num_heads, self.head_dim)
        return projected.permute(2, 0, 1, 3).contiguous()  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(
        self, x_BTD: Tensor, keys_values: tuple[Tensor, Tensor], distances_HXLC: Tensor, mask: RelativeMask
    ) -> tuple[Tensor, Tensor]:
        """One stream's queries [B, T, D] → attention output [B, T, D] and weights [H, B, T, S]."""
        batch_size, num_tokens, _ = x_BTD.shape
        q = (
            self.query(x_BTD)
            .view(batch_size, num_tokens, self.num_heads, self.head_dim)
            .permute(2, 0, 1, 3)
            .contiguous()
        )
        content, distance = (_broadcast_bias(bias, q) for bias in (self.biases.content, self.biases.distance))
        attended, weights = _RelativeAttentionFunction.apply(  # type: ignore[no-untyped-call]  # autograd is untyped
            q + content,
            q + distance,
            *keys_values,
            distances_HXLC,
            self._segment_scores(q) if mask.different_segment is not None else None,
            mask,
            self.dropout if self.training else 0.0,
        )
        if mask.fully_masked is not None:
            attended = attended.masked_fill(mask.fully_masked[None, :, :, None], 0)
        return self.output(attended.permute(1, 2, 0, 3).reshape(batch_size, num_tokens, -1)), weights

    def _segment_scores(self, q_HBTC: Tensor) -> Tensor:
        """[H, B, T] score of keys in another segment minus that of keys in the query's own: softmax needs only this
        difference."""
        assert self.segments is not None and self.biases.segment is not None
        same_segment, other_segment = self.segments.to(q_HBTC.dtype)
        query = q_HBTC + _broadcast_bias(self.biases.segment, q_HBTC)
        return torch.einsum("hbtc,hc->hbt", query, (other_segment - same_segment) / math.sqrt(self.head_dim))


def _broadcast_bias(bias_HC: Tensor, q_HBTC: Tensor) -> Tensor:
    return bias_HC.to(q_HBTC.dtype)[:, None, None]


def sinusoidal_encoding(distances_L: Tensor, hidden_size: int, dtype: torch.dtype) -> Tensor:
    """Sinusoidal encoding of positive and negative distances, sines before cosines: [..., L] → [..., L, D]."""
    wide_dtype = torch.promote_types(dtype, torch.float32)
    power = torch.arange(0, hidden_size, 2, device=distances_L.device).to(wide_dtype) / hidden_size
    angle = distances_L.to(wide_dtype)[..., None] * 10_000.0**-power
    return torch.cat([angle.sin(), angle.cos()[..., : hidden_size // 2]], -1).to(dtype)


class _RelativeAttentionFunction(torch.autograd.Function):
    """softmax((a·kᵀ + shift(b·rᵀ))/√C)·v with a hand-written backward pass, for which only the weights are saved."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        k: Tensor,
        v: Tensor,
        r: Tensor,
        segment_HBT: Tensor | None,
        mask: RelativeMask,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        scale = 1 / math.sqrt(a.shape[-1])
        shape = (*a.shape[:3], k.shape[2])
        shifted = mask.shift.shift(_distance_scores(b, r), shape[3]).flatten(0, 1)
        scores = torch.baddbmm(shifted, _flatten_heads(a), _flatten_heads(k).mT, beta=scale, alpha=scale).view(shape)
        if segment_HBT is not None and mask.different_segment is not None:
            scores.addcmul_(segment_HBT[..., None], mask.different_segment)
        if mask.masked is not None:
            scores.masked_fill_(mask.masked, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).to(v.dtype)
        dropout_mask = torch.empty_like(weights).bernoulli_(1 - dropout).div_(1 - dropout) if dropout else None
        attended = (weights if dropout_mask is None else weights * dropout_mask) @ v
        ctx.mask, ctx.scale, ctx.num_distances = mask, scale, r.shape[2]
        ctx.save_for_backward(a, b, k, v, r, weights, dropout_mask)
        ctx.mark_non_differentiable(weights)
        return attended, weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, b, k, v, r, weights, dropout_mask = ctx.saved_tensors
        grad = grads[0].contiguous()
        dropped_weights = weights if dropout_mask is None else weights * dropout_mask
        grad_v = dropped_weights.mT @ grad
        grad_weights = grad @ v.mT
        if dropout_mask is not None:
            grad_weights.mul_(dropout_mask)
        grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
        grad_segment = None
        if ctx.needs_input_grad[5]:
            grad_segment = (grad_scores * ctx.mask.different_segment).sum(-1)
        grad_scores.mul_(ctx.scale)
        grad_a, grad_k = grad_scores @ k, grad_scores.mT @ a
        grad_b, grad_r = _distance_scores_backward(ctx.mask.shift.unshift(grad_scores, ctx.num_distances), b, r)
        return grad_a, grad_b, grad_k, grad_v, grad_r, grad_segment, None, None


def _flatten_heads(x_HBTC: Tensor) -> Tensor:
    return x_HBTC.flatten(0, 1)


def _distance_scores(b_HBTC: Tensor, r_HXLC: Tensor) -> Tensor:
    """[H, B, T, L] b·rᵀ: one product per head for the whole batch where all rows share their distances."""
    num_heads, batch_size, num_tokens, head_dim = b_HBTC.shape
    if r_HXLC.shape[1] > 1:
        return b_HBTC @ r_HXLC.mT
    return torch.bmm(b_HBTC.view(num_heads, batch_size * num_tokens, head_dim), r_HXLC[:, 0].mT).view(
        num_heads, batch_size, num_tokens, -1
    )


def _distance_scores_backward(grad_HBTL: Tensor, b_HBTC: Tensor, r_HXLC: Tensor) -> tuple[Tensor, Tensor]:
    num_heads, batch_size, num_tokens, head_dim = b_HBTC.shape
    if r_HXLC.shape[1] > 1:
        return grad_HBTL @ r_HXLC, grad_HBTL.mT @ b_HBTC
    grad = grad_HBTL.view(num_heads, batch_size * num_tokens, -1)
    grad_r = torch.bmm(grad.mT, b_HBTC.view(num_heads, batch_size * num_tokens, head_dim))
    return torch.bmm(grad, r_HXLC[:, 0]).view_as(b_HBTC), grad_r[:, None]


def apply_dropout(x: Tensor, dropout: float, training: bool) -> Tensor:
    """Dropout, skipped if the rate is 0."""
    return F.dropout(x, dropout, training) if dropout else x
