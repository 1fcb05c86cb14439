"""Vocabulary head (tied output layer) and chunked cross-entropy that computes gradients in the forward pass."""

# N predictions, D hidden size, V vocabulary

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_variadic

from meristem.blocks.heads.accuracy import target_rank
from meristem.blocks.int8_linear import Int8Linear
from meristem.blocks.multinomial import sample_multinomial
from meristem.blocks.precision import at_least_float32, autocast_disabled

MIN_CHUNK_ROWS = 256  # minimum rows of logits in memory at once: 256 × 30,522 floats are 31 MB
MAX_CHUNK_LOGITS = 2**22  # small vocabularies take more rows: 512 rows of 8,192 tokens run 15 % faster than 256


@dataclass(frozen=True, kw_only=True)
class VocabularyLoss:
    """Result of a vocabulary loss."""

    total: Tensor
    """The sum of losses, with gradient."""
    losses_N: Tensor
    """Cross-entropy of each prediction, detached."""
    ranks_N: Tensor | None
    """Number of tokens with a higher score than the target; only without gradient."""
    is_top_N: Tensor | None = None
    """Whether no token has a higher score than the target."""
    sampled_ids_N: Tensor | None = None
    """Tokens sampled from each prediction's distribution, where uniforms were given."""


class VocabularyHead(nn.Module):
    """Hidden states → logits over the vocabulary, with an optional transform; weights tied to the embedding."""

    is_linear: bool = True
    """Whether logits are one product with `weight`."""

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        transform: nn.Module | None = None,
        bias: bool = False,
        soft_cap: float | None = None,
    ) -> None:
        super().__init__()
        self.transform, self.soft_cap = transform, soft_cap
        if soft_cap is not None:
            self.is_linear = False
        self.weight = embedding.weight
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings)) if bias else None
        self.int8: Int8Linear | None = None
        """The product with quantized weights, for inference; the embedding table stays as it is."""

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → [..., V]."""
        return self._logits(self.apply_transform(states))

    def quantize(self) -> None:
        """Compute logits with int8 weights from now on; without effect on a head that is not one product."""
        if self.is_linear:
            self.int8 = Int8Linear(self.weight, self.bias)

    def _logits(self, hidden: Tensor) -> Tensor:
        """[..., D] → [..., V], after the transform."""
        if self.int8 is not None:
            return self.int8(hidden)  # type: ignore[no-any-return]  # nn.Module.__call__
        weight, bias = self.weight.to(hidden.dtype), None if self.bias is None else self.bias.to(hidden.dtype)
        logits = nn.functional.linear(hidden, weight, bias)
        return logits if self.soft_cap is None else self.soft_cap * torch.tanh(logits / self.soft_cap)

    def compute_loss(
        self,
        states_ND: Tensor,
        targets_N: Tensor,
        *,
        smoothing: float = 0.0,
        l1: float = 0.0,
        uniform_N: Tensor | None = None,
    ) -> VocabularyLoss:
        """The summed loss; logits are computed and freed chunk by chunk. Without a gradient and penalties also ranks.

        With uniforms in [0, 1) a token is sampled from each prediction while its logits exist.
        """
        hidden = self.apply_transform(states_ND)
        needs_grad = torch.is_grad_enabled() and (hidden.requires_grad or self.weight.requires_grad)
        if not needs_grad and not smoothing and not l1:
            with autocast_disabled(hidden.device):
                losses, ranks, sampled_ids = _evaluate_chunks(
                    self._logits, at_least_float32(hidden), targets_N, uniform_N
                )
            return VocabularyLoss(
                total=losses.sum(), losses_N=losses, ranks_N=ranks, is_top_N=ranks < 1, sampled_ids_N=sampled_ids
            )
        losses, total, is_top, sampled_ids = fused_cross_entropy(
            hidden, self.weight, self.bias, targets_N, smoothing, l1, uniform_N, self.soft_cap
        )
        return VocabularyLoss(total=total, losses_N=losses, ranks_N=None, is_top_N=is_top, sampled_ids_N=sampled_ids)

    def apply_transform(self, states: Tensor) -> Tensor:
        """Hidden states after the optional transform, the input of the output layer."""
        return self.transform(states) if self.transform is not None else states


def chunked_cross_entropy(
    states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each prediction [N], detached, and its sum with gradient."""
    losses, total, _, _ = fused_cross_entropy(states_ND, weight_VD, bias_V, targets_N, 0.0, 0.0, None, None)
    return losses, total


def fused_cross_entropy(
    states_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    smoothing: float,
    l1: float,
    uniform_N: Tensor | None,
    soft_cap: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Losses, their sum with gradient, which targets have the highest score, and sampled tokens.

    A torch function mode may replace it: per-sample gradients of private training are computed by another one.
    """
    arguments = (states_ND, weight_VD, bias_V, targets_N, smoothing, l1, uniform_N, soft_cap)
    if has_torch_function_variadic(states_ND, weight_VD):
        return handle_torch_function(fused_cross_entropy, (states_ND, weight_VD), *arguments)
    return _ChunkedCrossEntropy.apply(*arguments)  # type: ignore[no-any-return, no-untyped-call]  # autograd is untyped


def _evaluate_chunks(
    compute_logits: Callable[[Tensor], Tensor], states: Tensor, targets: Tensor, uniform: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Cross-entropy and rank of each prediction, and sampled tokens if uniforms are given, without gradient."""
    losses, ranks, sampled_ids = [], [], []
    for start in range(0, len(targets), MIN_CHUNK_ROWS):
        chunk, chunk_targets = states[start : start + MIN_CHUNK_ROWS], targets[start : start + MIN_CHUNK_ROWS]
        logits = compute_logits(chunk)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        target_logits = logits.gather(1, chunk_targets[:, None])
        losses.append(logits.logsumexp(1) - target_logits[:, 0])
        ranks.append(target_rank(logits, target_logits))
        if uniform is not None:
            exp_logits = logits.sub_(logits.amax(1, keepdim=True)).exp_()
            sampled_ids.append(sample_multinomial(exp_logits.t(), uniform[start : start + MIN_CHUNK_ROWS]))
    empty = targets.new_zeros(0)
    if not losses:
        return states.new_zeros(0, dtype=torch.float32), empty, None if uniform is None else empty
    return torch.cat(losses), torch.cat(ranks), torch.cat(sampled_ids) if sampled_ids else None


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Σ cross-entropy, optionally with label smoothing and λ·mean|logit|; the forward pass computes the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        smoothing: float,
        l1: float,
        uniform_N: Tensor | None,
        soft_cap: float | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        with autocast_disabled(states_ND.device):
            chunked_pass = _ChunkedPass(
                states_ND, weight_VD, bias_V, ctx.needs_input_grad, smoothing, l1, uniform_N, soft_cap
            )
            for start in range(0, len(targets_N), chunked_pass.chunk_rows):
                chunked_pass.run_chunk(
                    slice(start, start + chunked_pass.chunk_rows), targets_N[start : start + chunked_pass.chunk_rows]
                )
        ctx.chunked_pass = chunked_pass
        ctx.mark_non_differentiable(
            *(
                tensor
                for tensor in (chunked_pass.losses, chunked_pass.is_top, chunked_pass.sampled_ids)
                if tensor is not None
            )
        )
        return chunked_pass.losses, chunked_pass.total, chunked_pass.is_top, chunked_pass.sampled_ids

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (*ctx.chunked_pass.gradients(grads[1]), None, None, None, None, None)


class _ChunkedPass:
    """One pass over all chunks, which share one buffer of logits.

    Logits are [V, rows] (z = W hᵀ): on CPUs that product runs up to twice as fast as h Wᵀ. With E = exp(z − max z) and
    s = ΣE the gradient of one row is E/s − onehot: E is used as it is, and the division is applied to the [rows, D]
    side of both products.
    """

    def __init__(
        self,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        needs_grad: tuple[bool, ...],
        smoothing: float,
        l1: float,
        uniform: Tensor | None,
        soft_cap: float | None,
    ) -> None:
        self.soft_cap = soft_cap
        self.states, self.smoothing, self.l1, self.uniform = states, smoothing, l1, uniform
        self.sampled_ids = None if uniform is None else torch.zeros_like(uniform, dtype=torch.long)
        self.dtypes = (states.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
        self.weight = weight.to(states.dtype)
        self.bias = bias
        self.wide_dtype = torch.promote_types(states.dtype, torch.float32)  # sums never in half precision
        self.losses = states.new_empty(len(states), dtype=self.wide_dtype)
        self.is_top = states.new_empty(len(states), dtype=torch.bool)
        self.total = states.new_zeros((), dtype=self.wide_dtype)
        self.chunk_rows = max(MIN_CHUNK_ROWS, MAX_CHUNK_LOGITS // len(weight))
        self.buffer = states.new_empty(len(weight), min(self.chunk_rows, len(states)))
        self.grads = (
            torch.empty_like(states) if needs_grad[0] else None,
            torch.zeros_like(self.weight, dtype=self.wide_dtype) if needs_grad[1] else None,
            torch.zeros_like(self.weight[:, 0], dtype=self.wide_dtype) if needs_grad[2] else None,
        )

    def run_chunk(self, rows: slice, targets: Tensor) -> None:
        """Compute the losses of these rows and add to the gradients."""
        h = self.states[rows]
        logits = self.buffer if len(h) == self.buffer.shape[1] else self.buffer.new_empty(len(self.weight), len(h))
        torch.mm(self.weight, h.t(), out=logits)
        logits = logits.to(self.wide_dtype)  # the softmax in float32, whatever the products are computed in
        if self.bias is not None:
            logits.add_(self.bias[:, None])
        cap_grad = None
        if self.soft_cap is not None:
            logits = logits.div_(self.soft_cap).tanh_()
            cap_grad = 1 - logits.square()
            logits.mul_(self.soft_cap)
        target_logits = logits.gather(0, targets[None])[0]
        penalty, penalty_grad = _loss_penalties(logits, self.smoothing, self.l1)
        max_logits = logits.amax(0)
        self.is_top[rows] = target_logits >= max_logits
        exp_logits = logits.sub_(max_logits).exp_()
        if self.sampled_ids is not None and self.uniform is not None:
            self.sampled_ids[rows] = sample_multinomial(exp_logits, self.uniform[rows])
        exp_sums = exp_logits.sum(0)
        losses = exp_sums.log() + max_logits - target_logits
        self.losses[rows] = losses
        self.total += losses.sum() if penalty is None else (losses + penalty + self.smoothing * target_logits).sum()
        row_scale = exp_sums.reciprocal()
        if penalty_grad is not None:  # penalties change every logit: passes over [V, rows]
            exp_logits = exp_logits.mul_(row_scale).add_(penalty_grad)
            row_scale = torch.ones_like(row_scale)
        target_weight = 1 - self.smoothing
        if cap_grad is not None:  # every logit has its own factor, that of the target included
            exp_logits = exp_logits.mul_(row_scale)
            exp_logits[targets, torch.arange(len(targets), device=targets.device)] -= target_weight
            exp_logits, row_scale, target_weight = exp_logits.mul_(cap_grad), torch.ones_like(row_scale), 0.0
        self._accumulate_gradients(rows, targets, exp_logits, row_scale, target_weight)

    def _accumulate_gradients(
        self, rows: slice, targets: Tensor, exp_logits: Tensor, row_scale: Tensor, target_weight: float
    ) -> None:
        grad_states, grad_weight, grad_bias = self.grads
        if grad_bias is not None:
            grad_bias.addmv_(exp_logits, row_scale).index_add_(
                0, targets, torch.ones_like(row_scale), alpha=-target_weight
            )
        exp_logits = exp_logits.to(self.states.dtype)
        if grad_states is not None:
            torch.mm(exp_logits.t(), self.weight, out=grad_states[rows])
            grad_states[rows].mul_(row_scale[:, None]).sub_(self.weight[targets], alpha=target_weight)
        if grad_weight is None:
            return
        h = self.states[rows]
        scaled_h = (h * row_scale[:, None]).to(h.dtype)
        if grad_weight.dtype == h.dtype:
            grad_weight.addmm_(exp_logits, scaled_h)
        else:  # products in half precision, their sum over chunks in float32
            grad_weight.add_(exp_logits @ scaled_h)
        grad_weight.index_add_(0, targets, h.to(grad_weight.dtype), alpha=-target_weight)

    def gradients(self, scale: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients times that of the total loss, in place; to be called once."""
        return tuple(
            None if grad is None else grad.mul_(scale).to(dtype)
            for grad, dtype in zip(self.grads, self.dtypes, strict=True)
        )


def _loss_penalties(logits: Tensor, smoothing: float, l1: float) -> tuple[Tensor | None, Tensor | None]:
    """What label smoothing and L1 add to each row's loss (without smoothing · target logit), and its gradient."""
    if not smoothing and not l1:
        return None, None
    vocab_size, wide_dtype = logits.shape[0], torch.promote_types(logits.dtype, torch.float32)
    penalty = l1 * logits.abs().mean(0, dtype=wide_dtype) - smoothing * logits.mean(0, dtype=wide_dtype)
    penalty_grad = logits.sign().mul_(l1 / vocab_size).sub_(smoothing / vocab_size)
    return penalty, penalty_grad
