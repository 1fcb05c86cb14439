"""Log-probabilities of chosen words, with a gradient for each of them, and never the logits of all at once."""

# N predictions, D width, V vocabulary

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from meristem.blocks.vocabulary import CHUNK, LOGITS, VocabularyHead


def chosen(
    head: VocabularyHead, states_ND: Tensor, words_N: Tensor, *, without_V: Tensor | None = None, heat: float = 1.0
) -> Tensor:
    """[N] log p(word) where `without_V` is −∞ for words that cannot be chosen, and logits are divided by the heat."""
    if not head.plain:
        logits: Tensor = head(states_ND) / heat
        logits = logits if without_V is None else logits + without_V.to(logits)
        return torch.log_softmax(logits, -1).gather(1, words_N[:, None])[:, 0]
    ready, bias = head.ready(states_ND) / heat, None if head.bias is None else head.bias / heat
    if without_V is not None:
        shut = without_V.to(ready)
        bias = shut if bias is None else bias + shut
    return _Chosen.apply(ready, head.weight, bias, words_N)  # type: ignore[no-untyped-call, no-any-return]  # autograd is untyped


class _Chosen(torch.autograd.Function):
    """z_w − log Σ exp z; the way back makes each chunk of logits anew: dz = g · (onehot − softmax z)."""

    @staticmethod
    def forward(ctx: Any, states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, words_N: Tensor) -> Tensor:
        whole, right = [], []
        for part in _parts(len(words_N), len(weight_VD)):
            logits = _logits(states_ND[part], weight_VD, bias_V)
            whole.append(logits.logsumexp(1))
            right.append(logits.gather(1, words_N[part, None])[:, 0])
        wide = torch.promote_types(states_ND.dtype, torch.float32)
        whole_N = torch.cat(whole) if whole else states_ND.new_zeros(0, dtype=wide)
        ctx.save_for_backward(states_ND, weight_VD, bias_V, words_N, whole_N)
        return torch.cat(right) - whole_N if right else whole_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states_ND, weight_VD, bias_V, words_N, whole_N = ctx.saved_tensors
        needs, grad_N = ctx.needs_input_grad, grads[0]
        states, weight = torch.zeros_like(states_ND), torch.zeros_like(weight_VD) if needs[1] else None
        bias = torch.zeros_like(bias_V) if needs[2] else None
        for part in _parts(len(words_N), len(weight_VD)):
            slope = (_logits(states_ND[part], weight_VD, bias_V) - whole_N[part, None]).exp_()
            slope.mul_(-grad_N[part, None]).scatter_add_(1, words_N[part, None], grad_N[part, None])
            slope = slope.to(states_ND.dtype)
            states[part] = slope @ weight_VD.to(slope.dtype)
            if weight is not None:
                weight += slope.t() @ states_ND[part]
            if bias is not None:
                bias += slope.sum(0)
        return states if needs[0] else None, weight, bias, None


def _parts(number: int, words: int) -> list[slice]:
    rows = max(CHUNK, LOGITS // words)
    return [slice(first, first + rows) for first in range(0, number, rows)]


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Never narrower than float32."""
    logits = states @ weight.to(states.dtype).t()
    logits = logits if bias is None else logits + bias
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
