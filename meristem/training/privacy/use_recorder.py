"""Use recorder: a torch function mode that notes every use of a trained parameter in a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from meristem.blocks.heads.vocabulary import fused_cross_entropy
from meristem.blocks.multinomial import sample_multinomial
from meristem.dataset.poisson_feed import UnitBatch
from meristem.training.privacy.recorded_uses import AffineUse, MatrixUse, Use

HARMLESS = frozenset(
    {
        *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "requires_grad", "is_meta", "ndim")),
        *(Tensor.__len__, Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point),
    }
)
"""Functions of a parameter that do not read its values."""


class UnsupportedUseError(Exception):
    """A parameter is used in a way that ghost clipping has no formula for."""


class UseRecorder(TorchFunctionMode):
    """Records uses of parameters; the row of a batch that each position of an activation belongs to is known by size.

    [B, T, …] has the rows of the batch first. [N, …] are selected positions: those of a loss term, or of all of them.
    """

    def __init__(self, batch: UnitBatch, axis_length: int, positions: Iterable[Tensor]) -> None:
        super().__init__()
        self.uses: list[Use] = []
        self.term = 0
        """The loss term whose backward pass runs."""
        self.row_units = batch.row_units.to(batch.sample_index.device)
        rows = len(self.row_units)
        candidates = [self.row_units, self.row_units.repeat_interleave(axis_length)]
        candidates += [self.row_units[at // axis_length] for at in positions if len(at)]
        self._units_by_size: dict[int, list[Tensor]] = {}
        for units in candidates:
            self._units_by_size.setdefault(len(units), []).append(units)
        self.num_rows = rows

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not any(map(_is_trained, _flatten([*args, *kwargs.values()]))) or func in HARMLESS:
            return func(*args, **kwargs)
        if func is Tensor.to:
            converted = func(*args, **kwargs)
            if converted is args[0]:
                return converted
        handler = _HANDLERS.get(func)
        if handler is None:
            raise UnsupportedUseError(f"a parameter is used in {getattr(func, '__name__', func)}")
        return handler(self, *args, **kwargs)

    def units_of(self, activation: Tensor) -> Tensor:
        """The unit of each position of an activation [..., D], flattened."""
        leading = activation.shape[:-1]
        if len(leading) >= 2:
            if leading[0] != self.num_rows:
                raise UnsupportedUseError(f"an activation of {tuple(activation.shape)} is not one row per text")
            return self.row_units.repeat_interleave(leading[1:].numel())
        candidates = self._units_by_size.get(leading[0], [])
        if not candidates or any(not torch.equal(candidates[0], other) for other in candidates[1:]):
            raise UnsupportedUseError(f"which texts the {leading[0]} rows of an activation belong to is not known")
        return candidates[0]

    def add(self, use: Use) -> None:
        """Keep a use."""
        self.uses.append(use)


def _is_trained(value: Any) -> bool:
    return isinstance(value, nn.Parameter) and value.requires_grad


def _flatten(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flatten(value)
        else:
            yield value


def _if_trained(parameter: Any) -> nn.Parameter | None:
    return parameter if _is_trained(parameter) else None


# ------------------------------------------------------------ handlers


def _linear(recorder: UseRecorder, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    use = MatrixUse(
        units=recorder.units_of(x),
        weight=_if_trained(weight),
        bias=_if_trained(bias),
        inputs=x.detach().reshape(-1, x.shape[-1]),
    )
    recorder.add(use)
    return _RecordedLinear.apply(x, weight, bias, use, recorder)  # type: ignore[no-any-return, no-untyped-call]  # autograd is untyped


def _embedding(
    recorder: UseRecorder,
    ids: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq or sparse:
        raise UnsupportedUseError("an embedding has options that change its gradient")
    if ids.dim() == 1:  # positions, the same in every row: one copy per row, so that the rows' gradients stay apart
        if not torch.equal(ids, torch.arange(len(ids), device=ids.device)):
            raise UnsupportedUseError("token ids of several texts are looked up without their rows")
        ids = ids.expand(recorder.num_rows, -1)
    vectors = F.embedding(ids, weight.detach())
    use = MatrixUse(units=recorder.units_of(vectors), weight=_if_trained(weight), bias=None, inputs=ids.reshape(-1))
    recorder.add(use)
    return _RecordedLeaf.apply(vectors, weight, use, recorder)  # type: ignore[no-any-return, no-untyped-call]  # as above


def _table_row(recorder: UseRecorder, table: Tensor, index: Any) -> Tensor:
    if not isinstance(index, int) or table.dim() != 2:
        raise UnsupportedUseError("a parameter is indexed")
    vectors = table.detach()[index].expand(recorder.num_rows, 1, -1)
    ids = torch.full((recorder.num_rows,), index, device=table.device)
    use = MatrixUse(units=recorder.row_units, weight=_if_trained(table), bias=None, inputs=ids)
    recorder.add(use)
    return _RecordedLeaf.apply(vectors, table, use, recorder)  # type: ignore[no-any-return, no-untyped-call]  # as above


def _layer_norm(
    recorder: UseRecorder,
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return _affine(recorder, F.layer_norm(x, normalized_shape, eps=eps), weight, bias)


def _rms_norm(
    recorder: UseRecorder, x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    return _affine(recorder, F.rms_norm(x, normalized_shape, eps=eps), weight, None)


def _affine(recorder: UseRecorder, normalized: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    use = AffineUse(
        units=recorder.units_of(normalized),
        weight=_if_trained(weight),
        bias=_if_trained(bias),
        inputs=normalized.detach().reshape(-1, normalized.shape[-1]),
    )
    recorder.add(use)
    return _RecordedAffine.apply(normalized, weight, bias, use, recorder)  # type: ignore[no-any-return, no-untyped-call]  # as above


def _cross_entropy(
    recorder: UseRecorder,
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    l1: float,
    uniform: Tensor | None,
    soft_cap: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    if l1 or soft_cap is not None:
        raise UnsupportedUseError("the vocabulary loss has an L1 penalty or a soft cap")
    use = MatrixUse(
        units=recorder.units_of(states), weight=_if_trained(weight), bias=_if_trained(bias), inputs=states.detach()
    )
    recorder.add(use)
    return _RecordedCrossEntropy.apply(states, weight, bias, targets, smoothing, uniform, use, recorder)  # type: ignore[no-any-return, no-untyped-call]  # as above


_HANDLERS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.linear: _linear,
    F.embedding: _embedding,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    Tensor.__getitem__: _table_row,
    fused_cross_entropy: _cross_entropy,
}


# ------------------------------------------------------------ autograd functions that leave parameters out


class _RecordedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, use: Use, recorder: UseRecorder) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.use, ctx.recorder = use, recorder
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        ctx.use.record(ctx.recorder.term, grads[0])
        return (grads[0] @ weight if ctx.needs_input_grad[0] else None, None, None, None, None)


class _RecordedLeaf(torch.autograd.Function):
    """Vectors read from a table; the table is an argument only so that the output has a gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, table: Tensor, use: Use, recorder: UseRecorder) -> Tensor:
        ctx.use, ctx.recorder = use, recorder
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        ctx.use.record(ctx.recorder.term, grads[0])
        return None, None, None, None


class _RecordedAffine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, normalized: Tensor, weight: Tensor | None, bias: Tensor | None, use: Use, recorder: UseRecorder
    ) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.use, ctx.recorder = use, recorder
        scaled = normalized if weight is None else normalized * weight
        return scaled.clone() if bias is None and weight is None else scaled if bias is None else scaled + bias

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        ctx.use.record(ctx.recorder.term, grads[0])
        return (grads[0] if weight is None else grads[0] * weight, None, None, None, None)


class _RecordedCrossEntropy(torch.autograd.Function):
    """Σ cross-entropy; the gradient of the logits is computed in the forward pass, in place of the logits."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        uniform: Tensor | None,
        use: Use,
        recorder: UseRecorder,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        logits = F.linear(states, weight, bias)
        target_logits = logits.gather(1, targets[:, None])[:, 0]
        log_sums, means = logits.logsumexp(1), logits.mean(1) if smoothing else 0.0
        losses, is_top = log_sums - target_logits, target_logits >= logits.amax(1)
        total = (log_sums - (1 - smoothing) * target_logits - smoothing * means).sum()
        probabilities = logits.sub_(log_sums[:, None]).exp_()
        sampled = None if uniform is None else sample_multinomial(probabilities.mT.contiguous(), uniform)
        if smoothing:
            probabilities.sub_(smoothing / probabilities.shape[1])
        probabilities[torch.arange(len(targets), device=targets.device), targets] -= 1 - smoothing
        ctx.save_for_backward(weight)
        ctx.logit_gradient, ctx.use, ctx.recorder = probabilities, use, recorder
        ctx.mark_non_differentiable(*(tensor for tensor in (losses, is_top, sampled) if tensor is not None))
        return losses, total, is_top, sampled

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        gradient = ctx.logit_gradient * grads[1] if float(grads[1]) != 1.0 else ctx.logit_gradient
        ctx.use.record(ctx.recorder.term, gradient)
        return (gradient @ weight if ctx.needs_input_grad[0] else None, *(None,) * 7)
