"""Attention with materialized weights, for bfloat16 on CPUs: batched products with a softmax between them.

torch's `scaled_dot_product_attention` converts blocks of bfloat16 to float32 and back on CPUs: at 128 tokens its
forward and backward pass take 3.4 times as long, at 512 tokens 1.35 times, and at 1,024 they are the faster ones
(`python -m benchmarks.bfloat16_attention`).
"""

# B batch, H heads, T queries, S keys, C channels of one head, N = B · H

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MAX_KEYS, MAX_WEIGHTS = 512, 2**26
"""Maximum length, and maximum number of attention weights of one layer (128 MB in bfloat16)."""


def is_faster(q_BHTC: Tensor, k_BHSC: Tensor) -> bool:
    """Whether materialized attention is the faster one: bfloat16 on a CPU, as many key heads as heads, not too long."""
    return (
        q_BHTC.dtype == torch.bfloat16
        and q_BHTC.device.type == "cpu"
        and q_BHTC.shape[1] == k_BHSC.shape[1]
        and k_BHSC.shape[2] <= MAX_KEYS
        and q_BHTC.shape[:-1].numel() * k_BHSC.shape[2] <= MAX_WEIGHTS
    )


def materialized_attention(
    q_BHTC: Tensor, k_BHSC: Tensor, v_BHSC: Tensor, additive_mask: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """softmax(QKᵀ · scale + mask)V → [B, H, T, C]; the softmax is computed in float32 and stored in bfloat16."""
    attended: Tensor = _MaterializedAttention.apply(  # type: ignore[no-untyped-call]  # autograd is untyped
        q_BHTC, k_BHSC, v_BHSC, additive_mask, scale, dropout
    )
    return attended


def causal_mask(q_BHTC: Tensor) -> Tensor:
    """[T, T] additive mask: −∞ at later keys."""
    num_queries = q_BHTC.shape[2]
    return torch.full((num_queries, num_queries), -torch.inf, dtype=q_BHTC.dtype, device=q_BHTC.device).triu_(1)


class _MaterializedAttention(torch.autograd.Function):
    """The weights P = softmax(QKᵀ · scale + mask) are kept for the backward pass; scores are overwritten in place."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout: float) -> Tensor:
        batch_size, num_heads, num_queries, _ = q.shape
        with torch.autocast("cpu", enabled=False):
            q_NTC, k_NSC, v_NSC = (q * scale).flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
            scores = torch.bmm(q_NTC, k_NSC.mT)
            if mask is not None:
                scores.view(batch_size, num_heads, num_queries, -1).add_(mask)
            weights = scores.softmax(-1)
            dropped, keep_mask = torch.native_dropout(weights, dropout, True) if dropout else (weights, None)
            ctx.save_for_backward(q_NTC, k_NSC, v_NSC, weights, keep_mask)
            ctx.scale, ctx.dropout, ctx.heads = scale, dropout, (batch_size, num_heads)
            ctx.mask_shape = None if mask is None else mask.shape
            return torch.bmm(dropped, v_NSC).view(batch_size, num_heads, num_queries, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q_NTC, k_NSC, v_NSC, weights, keep_mask = ctx.saved_tensors
        grad_NTC = grads[0].flatten(0, 1)
        keep_scale = 1 / (1 - ctx.dropout)
        with torch.autocast("cpu", enabled=False):
            dropped = weights if keep_mask is None else weights * keep_mask * keep_scale
            grad_v = torch.bmm(dropped.mT, grad_NTC)
            grad_weights = torch.bmm(grad_NTC, v_NSC.mT)
            if keep_mask is not None:
                grad_weights = grad_weights.mul_(keep_mask).mul_(keep_scale)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_q = torch.bmm(grad_scores, k_NSC).mul_(ctx.scale)
            grad_k = torch.bmm(grad_scores.mT, q_NTC)
            grad_q, grad_k, grad_v, grad_scores = (
                grad.view(*ctx.heads, *grad.shape[1:]) for grad in (grad_q, grad_k, grad_v, grad_scores)
            )
            grad_mask = grad_scores.sum_to_size(ctx.mask_shape) if ctx.needs_input_grad[3] else None
        return grad_q, grad_k, grad_v, grad_mask, None, None
