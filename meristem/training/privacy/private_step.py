"""The gradient of a private step (DP-SGD): clipped gradients of the drawn units, their sum, and Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from meristem.config.errors import RecipeError
from meristem.dataset.poisson_feed import UnitBatch
from meristem.distributed.process_group import DistributedContext
from meristem.learning.learner import Learner
from meristem.training.privacy.ghost_clipping import GhostClipping
from meristem.training.privacy.noise import add_noise
from meristem.training.privacy.per_sample import GradientMethod, PerSampleGradients, UnitPass, clip_factors
from meristem.training.privacy.settings import PrivacySettings
from meristem.training.privacy.use_recorder import UnsupportedUseError

CHECK_TOLERANCE = 1e-3
"""Relative difference of norms in float32 above which ghost clipping is taken to be wrong for a model."""
CHECKED_UNITS = 2


@dataclass(kw_only=True)
class PrivateStep:
    """Computes private gradients of a learner; noise is a function of (noise seed, step) alone."""

    learner: Learner
    settings: PrivacySettings
    distributed: DistributedContext
    noise_seed: int
    noise_multiplier: float
    units_per_step: dict[str, int]
    """Source → units drawn in the mean, the denominator of its gradient: the number drawn is itself protected."""
    log: Callable[[str], None]
    methods: dict[str, GradientMethod] = field(default_factory=dict)
    """Source → how per-sample gradients are computed, chosen at its first micro-batch."""

    def parameters(self, source: str) -> dict[str, nn.Parameter]:
        """Trained parameters of a step by name: those of the backbone and of the heads of its objective.

        Which of them have a gradient can depend on the units drawn, so all of them get noise.
        """
        model, heads = self.learner.model, self.learner.objectives[source].heads
        other_heads = [f"heads.{name}." for name in model.heads if name not in heads]
        shared = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if not _starts(name, other_heads)}
        return {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) in shared}

    def sums(self, source: str) -> dict[nn.Parameter, Tensor]:
        """Zeros to which the passes of a step add."""
        return {parameter: torch.zeros_like(parameter) for parameter in self.parameters(source).values()}

    def add_units(self, source: str, batch: UnitBatch, sums: dict[nn.Parameter, Tensor]) -> UnitPass:
        """Add the clipped gradients of a micro-batch."""
        if source not in self.methods:
            if len(batch.units) < CHECKED_UNITS and self.settings.gradients == "auto":
                return PerSampleGradients(self.learner).add(source, batch, sums, self.settings.clip)
            self.methods[source] = self._choose_method(source, batch)
        try:
            return self.methods[source].add(source, batch, sums, self.settings.clip)
        except UnsupportedUseError:  # which rows are whose is unclear in this micro-batch; nothing was added
            return PerSampleGradients(self.learner).add(source, batch, sums, self.settings.clip)

    def finish(self, source: str, step: int, sums: dict[nn.Parameter, Tensor]) -> None:
        """Set the gradients: the sum over all processes and noise, divided by the units drawn in the mean."""
        flat = torch.cat([total.flatten() for total in sums.values()])
        self.distributed.all_reduce_sum_(flat)
        parts = torch.split(flat, [total.numel() for total in sums.values()])
        deviation = self.noise_multiplier * self.settings.clip
        for number, (parameter, part) in enumerate(zip(sums, parts, strict=True)):
            total = part.view_as(parameter)
            add_noise(total, deviation, seed=self.noise_seed, step=step, tensor_number=number)
            parameter.grad = total / self.units_per_step[source]

    def _choose_method(self, source: str, batch: UnitBatch) -> GradientMethod:
        """Ghost clipping where it gives the norms of single passes on the first units, else single passes."""
        objective = self.learner.objectives[source].name
        single = PerSampleGradients(self.learner)
        if self.settings.gradients == "per_sample":
            return single
        try:
            reason = self._ghost_obstacle(source, batch)
        except (UnsupportedUseError, RuntimeError) as error:
            reason = str(error)
        if reason and self.settings.gradients == "ghost":
            raise RecipeError(
                f"train.privacy.gradients: ghost clipping cannot compute the gradients of this model ({reason}); "
                "leave it out, and each unit gets a backward pass of its own"
            )
        if reason:
            self.log(f"Per-sample gradients of {objective}: one backward pass per unit ({reason})")
            return single
        self.log(f"Per-sample gradients of {objective}: ghost clipping, as exact as one backward pass per unit")
        return GhostClipping(self.learner)

    def _ghost_obstacle(self, source: str, batch: UnitBatch) -> str:
        """Why ghost clipping cannot be used; empty if its norms are right on the first units."""
        if any(getattr(module, "recompute", False) for module in self.learner.modules()):
            return "train.gradient_checkpointing"
        with _without_dropout(self.learner):
            ghost = GhostClipping(self.learner).add(source, batch, self.sums(source), self.settings.clip)
            first = UnitBatch(**{**vars(batch), "units": batch.units[:CHECKED_UNITS]})
            single = PerSampleGradients(self.learner).add(source, first, self.sums(source), self.settings.clip)
        expected, ghost_norms = single.norms, ghost.norms[:CHECKED_UNITS].to(single.norms.dtype)
        if torch.allclose(expected, ghost_norms, rtol=CHECK_TOLERANCE, atol=1e-6):
            return ""
        return f"its norms {ghost_norms.tolist()} differ from {expected.tolist()}"


def clipped_share(norms: Sequence[Tensor], clip: float) -> tuple[float, int]:
    """Number of units whose gradient was scaled down, and of all units."""
    return float(sum((clip_factors(part, clip) < 1).sum() for part in norms)), sum(len(part) for part in norms)


def _starts(name: str, prefixes: Sequence[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)


class _NoDropout(TorchFunctionMode):
    """Dropout that objectives apply themselves is left out as well."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return args[0] if func is F.dropout else func(*args, **(kwargs or {}))


@contextmanager
def _without_dropout(learner: Learner) -> Iterator[None]:
    """All dropout rates are zero inside, so that two passes over the same units are comparable."""
    modules = [cast(Any, m) for m in learner.modules() if isinstance(getattr(m, "dropout", None), float)]
    layers = [module for module in learner.modules() if isinstance(module, nn.Dropout)]
    rates = [module.dropout for module in modules], [layer.p for layer in layers]
    for module in modules:
        module.dropout = 0.0
    for layer in layers:
        layer.p = 0.0
    try:
        with _NoDropout():
            yield
    finally:
        for module, rate in zip(modules, rates[0], strict=True):
            module.dropout = rate
        for layer, rate in zip(layers, rates[1], strict=True):
            layer.p = rate
