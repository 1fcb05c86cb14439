"""Per-sample gradients by one backward pass per unit: exact for every model and objective, and the slowest way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from meristem.dataset.poisson_feed import UnitBatch
from meristem.inputs.batch import Batch
from meristem.interfaces.objective import Outcome
from meristem.learning.learner import Learner

GradientSums = Mapping[nn.Parameter, Tensor]
"""Parameter → sum of clipped gradients, which the passes of a step add to."""


@dataclass(frozen=True, kw_only=True)
class UnitPass:
    """What a pass over the units of a micro-batch measured."""

    outcomes: Sequence[Outcome]
    norms: Tensor
    """[units] gradient norms before clipping."""


class GradientMethod(Protocol):
    """A way to add the clipped gradients of units to sums."""

    def add(self, source: str, batch: UnitBatch, sums: GradientSums, clip: float) -> UnitPass:
        """Add the gradient of each unit, scaled down to the norm `clip` if it is larger."""


def unit_totals(unit: Batch) -> dict[str, int]:
    """The denominators of a unit's loss terms: its own counts.

    A unit's gradient may depend on nothing but the unit: divided by totals over the step, as otherwise, it would change
    with who else was drawn. A mean over the unit also gives short and long documents norms of one size, for one clip.
    """
    return {term: max(1, count) for term, count in unit.target_counts.items()}


def clip_factors(norms: Tensor, clip: float) -> Tensor:
    """Factor of each unit's gradient: min(1, clip / norm); 0 where it is not finite, which would spoil the sum."""
    return torch.where(torch.isfinite(norms), (clip / norms.clamp(min=1e-30)).clamp(max=1.0), 0.0)


class PerSampleGradients:
    """One forward and backward pass for each unit."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def add(self, source: str, batch: UnitBatch, sums: GradientSums, clip: float) -> UnitPass:
        """Add the clipped gradient of each unit."""
        parameters, norms, outcomes = list(sums), list[Tensor](), list[Outcome]()
        for unit in batch.units:
            outcome = self.learner(source, unit, unit_totals(unit))
            outcomes.append(_detached(outcome))
            norm = torch.zeros((), device=unit.sample_index.device)
            if outcome.loss.requires_grad:
                all_gradients = torch.autograd.grad(outcome.loss, parameters, allow_unused=True)
                used = [(sums[p], g) for p, g in zip(parameters, all_gradients, strict=True) if g is not None]
                gradients = [gradient for _, gradient in used]
                norm = torch.stack(torch._foreach_norm(gradients)).norm()
                factor = float(clip_factors(norm, clip))
                if factor:
                    torch._foreach_add_([total for total, _ in used], gradients, alpha=factor)
            norms.append(norm)
        return UnitPass(outcomes=outcomes, norms=torch.stack(norms))


def _detached(outcome: Outcome) -> Outcome:
    """The outcome without the graph, so that the memory of one unit is free before the next."""
    return Outcome(
        loss_sums={term: total.detach() for term, total in outcome.loss_sums.items()}, metrics=outcome.metrics
    )
