"""Log-probabilities of selected tokens with per-token gradients, in chunks: the full logits never exist at once."""

# N predictions, D hidden size, V vocabulary

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from meristem.blocks.heads.vocabulary import MAX_CHUNK_LOGITS, MIN_CHUNK_ROWS, VocabularyHead


def selected_logprobs(
    head: VocabularyHead,
    states_ND: Tensor,
    token_ids_N: Tensor,
    *,
    logit_mask_V: Tensor | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """[N] log p(token) at a temperature; `logit_mask` is −∞ for banned tokens."""
    if not head.is_linear:
        logits: Tensor = head(states_ND) / temperature
        logits = logits if logit_mask_V is None else logits + logit_mask_V.to(logits)
        return torch.log_softmax(logits, -1).gather(1, token_ids_N[:, None])[:, 0]
    hidden, bias = head.apply_transform(states_ND) / temperature, None if head.bias is None else head.bias / temperature
    if logit_mask_V is not None:
        logit_mask = logit_mask_V.to(hidden)
        bias = logit_mask if bias is None else bias + logit_mask
    return _SelectedLogProbs.apply(hidden, head.weight, bias, token_ids_N)  # type: ignore[no-untyped-call, no-any-return]  # autograd is untyped


class _SelectedLogProbs(torch.autograd.Function):
    """z_w − log Σ exp z; the backward pass recomputes each chunk of logits: dz = g · (onehot − softmax z)."""

    @staticmethod
    def forward(ctx: Any, states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, token_ids_N: Tensor) -> Tensor:
        log_normalizers, target_logits = [], []
        for chunk in _chunk_slices(len(token_ids_N), len(weight_VD)):
            logits = _logits(states_ND[chunk], weight_VD, bias_V)
            log_normalizers.append(logits.logsumexp(1))
            target_logits.append(logits.gather(1, token_ids_N[chunk, None])[:, 0])
        dtype = torch.promote_types(states_ND.dtype, torch.float32)
        log_normalizer_N = torch.cat(log_normalizers) if log_normalizers else states_ND.new_zeros(0, dtype=dtype)
        ctx.save_for_backward(states_ND, weight_VD, bias_V, token_ids_N, log_normalizer_N)
        return torch.cat(target_logits) - log_normalizer_N if target_logits else log_normalizer_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states_ND, weight_VD, bias_V, token_ids_N, log_normalizer_N = ctx.saved_tensors
        needs_grad, grad_N = ctx.needs_input_grad, grads[0]
        grad_states, grad_weight = torch.zeros_like(states_ND), torch.zeros_like(weight_VD) if needs_grad[1] else None
        grad_bias = torch.zeros_like(bias_V) if needs_grad[2] else None
        for chunk in _chunk_slices(len(token_ids_N), len(weight_VD)):
            grad_logits = (_logits(states_ND[chunk], weight_VD, bias_V) - log_normalizer_N[chunk, None]).exp_()
            grad_logits.mul_(-grad_N[chunk, None]).scatter_add_(1, token_ids_N[chunk, None], grad_N[chunk, None])
            grad_logits = grad_logits.to(states_ND.dtype)
            grad_states[chunk] = grad_logits @ weight_VD.to(grad_logits.dtype)
            if grad_weight is not None:
                grad_weight += grad_logits.t() @ states_ND[chunk]
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
        return grad_states if needs_grad[0] else None, grad_weight, grad_bias, None


def _chunk_slices(num_predictions: int, vocab_size: int) -> list[slice]:
    chunk_size = max(MIN_CHUNK_ROWS, MAX_CHUNK_LOGITS // vocab_size)
    return [slice(first, first + chunk_size) for first in range(0, num_predictions, chunk_size)]


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logits in float32 at least."""
    logits = states @ weight.to(states.dtype).t()
    logits = logits if bias is None else logits + bias
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
