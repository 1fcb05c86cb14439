"""Ghost clipping (Li et al. 2022): norms of per-sample gradients from activations and output gradients of one pass.

The clipped sum is computed from the same records (book-keeping, Bu et al. 2023), so that no second backward pass and no
gradient of a single unit is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem.dataset.poisson_feed import UnitBatch
from meristem.learning.learner import Learner
from meristem.training.privacy.per_sample import GradientSums, UnitPass, clip_factors, unit_totals
from meristem.training.privacy.recorded_uses import (
    AffineUse,
    Factors,
    MatrixUse,
    add_weight_gradient,
    squared_norms,
    unit_sums,
)
from meristem.training.privacy.use_recorder import UnsupportedUseError, UseRecorder


class GhostClipping:
    """One forward and backward pass for all units of a micro-batch."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def add(self, source: str, batch: UnitBatch, sums: GradientSums, clip: float) -> UnitPass:
        """Add the clipped gradient of each unit; raises `UnsupportedUseError` before anything is added."""
        learner, objective = self.learner, self.learner.objectives[source]
        axis_length = batch.inputs[objective.axis].shape[1]
        output_positions = objective.output_positions(batch)
        positions = [target["at"] for target in batch.targets.values()]
        recorder = UseRecorder(
            batch, axis_length, positions if output_positions is None else [*positions, output_positions]
        )
        with recorder:
            outcome = objective.loss(learner.model, objective.encode(learner.model, batch), batch)
        terms = [term for term, total in outcome.loss_sums.items() if total.requires_grad]
        scales_KU = torch.tensor(
            [[objective.loss_weights[term] / unit_totals(unit)[term] for unit in batch.units] for term in terms],
            dtype=next(iter(sums.values())).dtype,
            device=batch.sample_index.device,
        )
        for number, term in enumerate(terms):
            recorder.term = number
            torch.autograd.backward(outcome.loss_sums[term], retain_graph=number + 1 < len(terms))
        _refuse_unrecorded(sums)
        pieces = _UnitGradients(recorder, scales_KU, len(batch.units))
        norms = pieces.norms()
        pieces.add_to(sums, clip_factors(norms, clip))
        return UnitPass(outcomes=[outcome], norms=norms)


def _refuse_unrecorded(sums: GradientSums) -> None:
    """Raise if a backward pass reached a parameter on a way that was not recorded."""
    unrecorded = [parameter for parameter in sums if parameter.grad is not None]
    for parameter in unrecorded:
        parameter.grad = None
    if unrecorded:
        raise UnsupportedUseError("a parameter is used by an autograd function of its own")


class _UnitGradients:
    """The gradients of all units of a pass, as factors of weights and as vectors of biases and norms."""

    def __init__(self, recorder: UseRecorder, scales_KU: Tensor, num_units: int) -> None:
        self.num_units = num_units
        self.weights: dict[nn.Parameter, list[Factors]] = {}
        self.vectors: dict[nn.Parameter, Tensor] = {}
        """Parameter → [U, …] gradient of each unit."""
        for use in recorder.uses:
            gradient = use.output_gradient(scales_KU)
            if gradient is None:
                continue
            if isinstance(use, MatrixUse):
                self._add_matrix(use, gradient)
            elif isinstance(use, AffineUse):
                self._add_vector(use.weight, gradient * use.inputs, use.units)
                self._add_vector(use.bias, gradient, use.units)

    def _add_matrix(self, use: MatrixUse, gradient: Tensor) -> None:
        if use.weight is not None:
            left, right = (use.inputs, gradient) if use.is_lookup else (gradient, use.inputs)
            self.weights.setdefault(use.weight, []).append(Factors(left, right, use.units))
        self._add_vector(use.bias, gradient, use.units)

    def _add_vector(self, parameter: nn.Parameter | None, values: Tensor, units: Tensor) -> None:
        if parameter is None:
            return
        summed = unit_sums(values, units, self.num_units)
        earlier = self.vectors.get(parameter)
        self.vectors[parameter] = summed if earlier is None else earlier + summed

    def norms(self) -> Tensor:
        """[U] norm of each unit's gradient over all parameters."""
        if both := self.weights.keys() & self.vectors.keys():
            raise UnsupportedUseError(f"{len(both)} parameters are both a weight and a bias")
        squares = [squared_norms(uses, self.num_units) for uses in self.weights.values()]
        squares += [values.square().sum(1) for values in self.vectors.values()]
        return torch.stack(squares).sum(0).sqrt()

    def add_to(self, sums: GradientSums, factors_U: Tensor) -> None:
        """Add the sum of all units' gradients, each times its factor."""
        for parameter, uses in self.weights.items():
            for use in uses:
                add_weight_gradient(sums[parameter], use, factors_U)
        for parameter, values in self.vectors.items():
            sums[parameter].add_((factors_U.to(values.dtype) @ values).view_as(parameter))
