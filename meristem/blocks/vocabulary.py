"""From hidden states to words: the tied output layer, and its loss in chunks with the gradient in the same pass."""

# N predictions, D width, V vocabulary

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available

from meristem.blocks.correct import rank
from meristem.blocks.sampling import drawn

CHUNK = 256  # rows of logits alive at once, at least: 256 × 30,522 floats are 31 MB
LOGITS = 2**22  # small vocabularies take more rows: 512 of 8,192 words run 15 % faster than 256


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a vocabulary loss found."""

    total: Tensor
    """The sum of losses, with gradient."""
    each_N: Tensor
    """Cross-entropy of each prediction, detached."""
    rank_N: Tensor | None
    """How many words scored higher than the right one; only without gradient."""
    drawn_N: Tensor | None = None
    """Words drawn from each prediction's distribution, where uniforms were given."""


class VocabularyHead(nn.Module):
    """States → logits over the vocabulary, through an optional transform, tied to the embedding."""

    plain: ClassVar[bool] = True
    """Logits are one product with `weight`."""

    def __init__(self, embedding: nn.Embedding, *, transform: nn.Module | None = None, bias: bool = False) -> None:
        super().__init__()
        self.transform = transform
        self.weight = embedding.weight
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings)) if bias else None

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → [..., V]."""
        return nn.functional.linear(self.ready(states), self.weight, self.bias)

    def judge(
        self,
        states_ND: Tensor,
        targets_N: Tensor,
        *,
        smoothing: float = 0.0,
        l1: float = 0.0,
        uniform_N: Tensor | None = None,
    ) -> Judged:
        """The summed loss of these predictions; logits never exist for more than a chunk of them.

        With uniforms in [0, 1) a word is drawn from each prediction while its logits are there.
        """
        ready = self.ready(states_ND)
        learning = torch.is_grad_enabled() and (ready.requires_grad or self.weight.requires_grad)
        if not learning:
            each, rank, words = _measure(ready, self.weight, self.bias, targets_N, uniform_N)
            return Judged(total=each.sum(), each_N=each, rank_N=rank, drawn_N=words)
        each, total, words = _Chunked.apply(  # type: ignore[no-untyped-call]  # autograd is untyped
            ready, self.weight, self.bias, targets_N, smoothing, l1, uniform_N
        )
        return Judged(total=total, each_N=each, rank_N=None, drawn_N=words)

    def ready(self, states: Tensor) -> Tensor:
        """What stands right before the vocabulary."""
        return self.transform(states) if self.transform is not None else states


def chunked(states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each prediction over some words, detached, and its sum with gradient."""
    each, total, _ = _Chunked.apply(  # type: ignore[no-untyped-call]  # autograd is untyped
        states_ND, weight_VD, bias_V, targets_N, 0.0, 0.0, None
    )
    return each, total


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return states @ weight.t()
    return torch.addmm(bias, states, weight.t())


def _measure(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, uniform: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Cross-entropy and rank of each prediction, and a word drawn from it where asked, without gradient."""
    each, ranks, words = [], [], []
    for start in range(0, len(targets), CHUNK):
        part, wanted = states[start : start + CHUNK], targets[start : start + CHUNK]
        logits = _logits(part, weight.to(part.dtype), None if bias is None else bias.to(part.dtype))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        right = logits.gather(1, wanted[:, None])
        each.append(logits.logsumexp(1) - right[:, 0])
        ranks.append(rank(logits, right))
        if uniform is not None:
            shares = logits.sub_(logits.amax(1, keepdim=True)).exp_()
            words.append(drawn(shares.t(), uniform[start : start + CHUNK]))
    nothing = targets.new_zeros(0)
    if not each:
        return states.new_zeros(0, dtype=torch.float32), nothing, None if uniform is None else nothing
    return torch.cat(each), torch.cat(ranks), torch.cat(words) if words else None


class _Chunked(torch.autograd.Function):
    """Σ cross-entropy (smoothed, and with λ·mean|logit| where asked), and its gradient while the logits are there."""

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
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        device = states_ND.device.type
        with torch.autocast(device, enabled=False) if is_autocast_available(device) else nullcontext():
            work = _Pass(states_ND, weight_VD, bias_V, ctx.needs_input_grad, smoothing, l1, uniform_N)
            for start in range(0, len(targets_N), work.rows):
                work.chunk(slice(start, start + work.rows), targets_N[start : start + work.rows])
        ctx.work = work
        ctx.mark_non_differentiable(*(tensor for tensor in (work.each, work.words) if tensor is not None))
        return work.each, work.total, work.words

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (*ctx.work.gradients(grads[1]), None, None, None, None)


class _Pass:
    """One pass over the chunks, one buffer of logits for all of them.

    Logits lie with the vocabulary down and the rows across (z = W hᵀ): on CPUs that product runs up to twice as fast
    as h Wᵀ. With E = exp(z − max z) and s = ΣE the gradient of one row is E/s − onehot: E is used as it is, and the
    division is done on the narrow side of both products.
    """

    def __init__(
        self,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        needs: tuple[bool, ...],
        smoothing: float,
        l1: float,
        uniform: Tensor | None,
    ) -> None:
        self.states, self.smoothing, self.l1, self.uniform = states, smoothing, l1, uniform
        self.words = None if uniform is None else torch.zeros_like(uniform, dtype=torch.long)
        self.types = (states.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
        self.weight = weight.to(states.dtype)
        self.bias = None if bias is None else bias.to(states.dtype)
        self.wide = torch.promote_types(states.dtype, torch.float32)  # sums never in half precision
        self.each = states.new_empty(len(states), dtype=self.wide)
        self.total = states.new_zeros((), dtype=self.wide)
        self.rows = max(CHUNK, LOGITS // len(weight))
        self.buffer = states.new_empty(len(weight), min(self.rows, len(states)))
        self.grads = (
            torch.empty_like(states) if needs[0] else None,
            torch.zeros_like(self.weight) if needs[1] else None,
            torch.zeros_like(self.weight[:, 0]) if needs[2] else None,
        )

    def chunk(self, part: slice, wanted: Tensor) -> None:
        """Judge these rows and add what they say to the gradients."""
        h = self.states[part]
        z = self.buffer if len(h) == self.buffer.shape[1] else self.buffer.new_empty(len(self.weight), len(h))
        torch.mm(self.weight, h.t(), out=z)
        if self.bias is not None:
            z.add_(self.bias[:, None])
        right = z.gather(0, wanted[None])[0].to(self.wide)
        extra, slope = _penalties(z, self.smoothing, self.l1)
        top = z.amax(0)
        e = z.sub_(top).exp_()
        if self.words is not None and self.uniform is not None:
            self.words[part] = drawn(e, self.uniform[part])
        s = e.sum(0, dtype=self.wide)
        each = s.log() + top.to(self.wide) - right
        self.each[part] = each
        self.total += each.sum() if extra is None else (each + extra + self.smoothing * right).sum()
        narrow = s.reciprocal().to(e.dtype)
        if slope is not None:  # penalties touch every logit, and pay for passes over the full width
            e = e.mul_(narrow).add_(slope)
            narrow = torch.ones_like(narrow)
        self._collect(part, wanted, e, narrow)

    def _collect(self, part: slice, wanted: Tensor, e: Tensor, narrow: Tensor) -> None:
        states, weight, bias = self.grads
        hit = 1 - self.smoothing
        if states is not None:
            torch.mm(e.t(), self.weight, out=states[part])
            states[part].mul_(narrow[:, None]).sub_(self.weight[wanted], alpha=hit)
        if weight is not None:
            h = self.states[part]
            weight.addmm_(e, h * narrow[:, None]).index_add_(0, wanted, h, alpha=-hit)
        if bias is not None:
            bias.addmv_(e, narrow).index_add_(0, wanted, torch.ones_like(narrow), alpha=-hit)

    def gradients(self, scale: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients times what the sum was multiplied with; they are used up by this."""
        return tuple(
            None if grad is None else grad.mul_(scale).to(kind)
            for grad, kind in zip(self.grads, self.types, strict=True)
        )


def _penalties(z: Tensor, smoothing: float, l1: float) -> tuple[Tensor | None, Tensor | None]:
    """Per row what smoothing and L1 add to the cross-entropy (less smoothing·right), and their slope in every logit."""
    if not smoothing and not l1:
        return None, None
    words, wide = z.shape[0], torch.promote_types(z.dtype, torch.float32)
    extra = l1 * z.abs().mean(0, dtype=wide) - smoothing * z.mean(0, dtype=wide)
    slope = z.sign().mul_(l1 / words).sub_(smoothing / words)
    return extra, slope
