"""One optimizer step for any objective: rollouts, gradient accumulation, clipping; skipped if it is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from meristem.config.errors import RecipeError
from meristem.dataset.poisson_feed import UnitBatch
from meristem.distributed.parallel import ParallelLearner, full_tensor
from meristem.distributed.process_group import SINGLE_PROCESS
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import State
from meristem.learning.learner import Learner
from meristem.training.optim.lr_schedules import lr_factor, weight_decay_factor
from meristem.training.optim.param_groups import parameter_names, set_lr_factor, set_weight_decay_factor
from meristem.training.optim.weight_average import WeightAverage
from meristem.training.precision import Precision, autocast_context
from meristem.training.privacy.private_step import PrivateStep, clipped_share
from meristem.training.settings import TrainSettings
from meristem.utils.randomness import torch_seed


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Result of one optimizer step; its tensors are on the CPU."""

    source: str
    terms: dict[str, Tensor]
    """Mean of each loss term that had targets; a term without targets is left out, not 0."""
    metrics: dict[str, tuple[Tensor, Tensor]]
    loss: Tensor
    grad_norm: Tensor
    is_finite: bool
    learning_rate: float
    tokens: int
    samples: int
    stop_reason: str | None = None
    """Why the objective stops the run; None to continue."""

    def window_metrics(self, *, is_mixed: bool) -> dict[str, tuple[float, float]]:
        """Metrics of the step as (sum, count) pairs; in a mix also the loss of its source."""
        metrics = {"gradient_norm": (float(self.grad_norm), 1.0)}
        if self.terms:
            metrics = {"loss": (float(self.loss), 1.0), **metrics}
            if is_mixed:
                metrics[f"{self.source}.loss"] = metrics["loss"]
        if len(self.terms) > 1:
            metrics.update({term: (float(value), 1.0) for term, value in self.terms.items()})
        logged = {name: pair for name, pair in self.metrics.items() if not name.startswith("_")}
        metrics.update({name: (float(total), float(count)) for name, (total, count) in logged.items()})
        return metrics


@dataclass(frozen=True, kw_only=True)
class _UpdateResult:
    """One pass over the micro-batches of a step, and whether its gradient was applied."""

    terms: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor]]
    loss: Tensor
    grad_norm: Tensor
    is_finite: bool
    observations: list[Any]
    """What the passes add to the history of the objective."""


@dataclass(frozen=True)
class _StepPasses:
    """What the passes of a step computed: gradients, and these numbers on the CPU."""

    terms: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor]]
    loss: Tensor
    grad_norm: Tensor
    states: dict[tuple[str, int], State]
    observations: list[Any]


def resolve_device(settings: TrainSettings) -> torch.device:
    """Device of a run: `train.device`, or the accelerator if there is one; refuses a device this machine lacks."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    available = accelerator if accelerator is not None else torch.device("cpu")
    if settings.device == "auto":
        return available
    try:
        device = torch.device(settings.device)
    except RuntimeError:
        raise RecipeError(f"train.device: {settings.device!r} is no device: choose auto or {available.type}") from None
    exists = device.type == "cpu" or (
        device.type == available.type and (device.index or 0) < torch.accelerator.device_count()
    )
    if not exists:
        raise RecipeError(f"train.device: this machine has no {device}: choose auto or {available.type}")
    return device


@dataclass(kw_only=True)
class Stepper:
    """Takes optimizer steps; holds the learner, its optimizers and the memory of recurrent backbones between steps."""

    learner: Learner
    optimizers: list[torch.optim.Optimizer]
    settings: TrainSettings
    device: torch.device
    precision: Precision = "float32"
    parallel: ParallelLearner | None = None
    """The learner wrapped for DDP or FSDP; a single process if None."""
    memory: dict[tuple[str, int], State] = field(default_factory=dict)  # (source, micro-step) → state
    histories: dict[str, Any] = field(default_factory=dict)
    """Per source the JSON data that its objective carries from step to step; saved with the train state."""
    private: PrivateStep | None = None
    """Clips the gradient of each unit and adds noise, instead of clipping that of the whole step."""

    def __post_init__(self) -> None:
        self._parallel = self.parallel if self.parallel is not None else ParallelLearner(self.learner, SINGLE_PROCESS)
        self.distributed, self.reshard = self._parallel.distributed, self._parallel.reshard
        decay = self.settings.ema_decay
        self.weight_average = None if decay is None else WeightAverage(parameter_names(self.learner.model), decay)

    def averaged_weights(self) -> AbstractContextManager[None]:
        """The model has its averaged weights inside, if the run averages them: to evaluate and to save it."""
        return nullcontext() if self.weight_average is None else self.weight_average.applied()

    def train_step(self, step: int, total: int, source: str, batches: Sequence[Batch]) -> StepResult:
        """Take step number `step` of `total` on these micro-batches."""
        lr_share = lr_factor(self.settings, step, total)
        set_lr_factor(self.optimizers, lr_share)
        set_weight_decay_factor(self.optimizers, weight_decay_factor(self.settings, step, total))
        explored = [
            self._explore(step, micro_step, source, replace(batch, progress=step / total))
            for micro_step, batch in enumerate(batches)
        ]
        objective = self.learner.objectives[source]
        names = list(objective.loss_weights)
        *counts, tokens, samples = map(
            round,
            self.distributed.all_reduce_sum(
                [
                    *(sum(batch.target_counts.get(term, 0) for batch in explored) for term in names),
                    sum(batch.num_tokens for batch in explored),
                    sum(len(batch.sample_ids) for batch in explored),
                ]
            ),
        )
        predicted_counts = dict(zip(names, counts, strict=True))
        totals = {term: max(1, count) for term, count in predicted_counts.items()}
        for _ in range(objective.updates_per_batch):
            passes = self._private_passes if self.private is not None else self._passes
            update = self._update(passes(step, source, explored, totals))
            if not update.is_finite:
                break
        if update.is_finite and objective.keeps_history:
            before = [observation for batch in explored for observation in objective.observations(batch)]
            observations = self.distributed.all_gather_json([*before, *update.observations])
            self.histories[source] = objective.update_history(self.histories.get(source), observations)
        if self.weight_average is not None:
            self.weight_average.update(step)
        return StepResult(
            source=source,
            terms={term: value for term, value in update.terms.items() if predicted_counts.get(term)},
            metrics=update.metrics,
            loss=update.loss,
            grad_norm=update.grad_norm,
            is_finite=update.is_finite,
            learning_rate=self.settings.learning_rate * lr_share,
            tokens=tokens,
            samples=samples,
            stop_reason=objective.after_step(self.learner.model, update.metrics) if update.is_finite else None,
        )

    def _passes(self, step: int, source: str, batches: Sequence[Batch], totals: dict[str, int]) -> _StepPasses:
        """Accumulate gradients over all micro-batches, and clip them."""
        terms: dict[str, Tensor] = {}
        metrics: dict[str, tuple[Tensor, Tensor]] = {}
        losses, states, observations = [], {}, list[Any]()
        for micro_step, batch in enumerate(batches):
            self._seed(step, micro_step)
            with self._parallel.gradient_sync(is_last=micro_step == len(batches) - 1):
                with autocast_context(self.precision, self.device):
                    outcome = self._parallel(source, batch, totals, self.memory.get((source, micro_step)))
                assert outcome.loss is not None
                self._parallel.backward(outcome.loss)
            losses.append(outcome.loss.detach())
            states[source, micro_step] = {key: value.detach() for key, value in outcome.state.items()}
            observations += outcome.observations
            _accumulate(terms, metrics, outcome.loss_sums, outcome.metrics, totals)
        loss, grad_norm = self._read_results(torch.stack(losses).sum(), self._clip_gradients(), terms, metrics)
        return _StepPasses(terms, metrics, loss, grad_norm, states, observations)

    def _private_passes(self, step: int, source: str, batches: Sequence[Batch], totals: dict[str, int]) -> _StepPasses:
        """Gradients of private training: clipped per unit and noisy; metrics are those of the units drawn."""
        assert self.private is not None
        objective, sums = self.learner.objectives[source], self.private.sums(source)
        terms = {term: torch.zeros((), device=self.device) for term in objective.loss_weights}
        metrics: dict[str, tuple[Tensor, Tensor]] = {}
        norms: list[Tensor] = []
        for micro_step, batch in enumerate(batches):
            self._seed(step, micro_step)
            assert isinstance(batch, UnitBatch)
            unit_pass = self.private.add_units(source, batch, sums)
            norms.append(unit_pass.norms)
            for outcome in unit_pass.outcomes:
                _accumulate(terms, metrics, outcome.loss_sums, outcome.metrics, totals)
        self.private.finish(source, step, sums)
        clipped, units = clipped_share(norms, self.private.settings.clip)
        counts = self.distributed.all_reduce_sum([clipped, units])
        loss = torch.stack([objective.loss_weights[term] * value for term, value in terms.items()]).sum()
        grad_norm = torch.nn.utils.get_total_norm([p.grad for p in sums if p.grad is not None])
        # a process whose units had no such metric would send fewer numbers than the others
        own_metrics = metrics if self.distributed.world_size == 1 else {}
        loss, grad_norm = self._read_results(loss, grad_norm, terms, own_metrics)
        metrics = dict(own_metrics)
        metrics["clipped_share"] = (torch.tensor(counts[0]), torch.tensor(max(1.0, counts[1])))
        return _StepPasses(terms, metrics, loss, grad_norm, {}, [])

    def _update(self, passes: _StepPasses) -> _UpdateResult:
        """Take a step of the optimizers, only if the loss and the gradient norm are finite."""
        loss, grad_norm = passes.loss, passes.grad_norm
        is_finite = bool(torch.isfinite(grad_norm) & torch.isfinite(loss))
        if is_finite:
            with autocast_context(self.precision, self.device):  # for Muon's products; the rest stays float32
                for optimizer in self.optimizers:
                    optimizer.step()
            self.memory.update({key: state for key, state in passes.states.items() if state})
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return _UpdateResult(
            terms=passes.terms,
            metrics=passes.metrics,
            loss=loss,
            grad_norm=grad_norm,
            is_finite=is_finite,
            observations=passes.observations,
        )

    def _seed(self, step: int, micro_step: int) -> None:
        """Seed torch by the step alone, so that dropout and rollouts are the same after a resume."""
        seed = torch_seed(self.settings.seed, step, micro_step, self.distributed.rank)
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # a microsecond, where torch.manual_seed takes 150
        else:
            torch.manual_seed(seed)

    def _explore(self, step: int, micro_step: int, source: str, batch: Batch) -> Batch:
        self._seed(step, micro_step)
        history = self.histories.get(source)
        if isinstance(batch, UnitBatch):  # each unit again by itself, and the batch counts what its units count
            units = [self.learner.explore(source, unit.to(self.device), history) for unit in batch.units]
            batch = replace(batch, units=units)
        return self.learner.explore(source, batch.to(self.device), history)

    def _clip_gradients(self) -> Tensor:
        """Clip gradients by their total norm; returns the norm before clipping."""
        parameters = [p for p in self.learner.parameters() if p.grad is not None]
        grad_norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.settings.max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.settings.max_grad_norm, grad_norm)
        return full_tensor(grad_norm)

    def _read_results(
        self, loss: Tensor, grad_norm: Tensor, terms: dict[str, Tensor], metrics: dict[str, tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """The loss and the gradient norm on the CPU, and `terms` and `metrics` too, in place; all but the norm summed
        over processes. One copy: it is the step's only wait for an accelerator, and reading them later is free."""
        local = [loss, *terms.values(), *(value for pair in metrics.values() for value in pair)]
        wide_dtype = torch.float32 if loss.device.type == "mps" else torch.float64  # MPS has no float64
        sums = torch.stack([value.to(loss.device, wide_dtype) for value in local])
        self.distributed.all_reduce_sum_(sums)
        *host_sums, host_norm = torch.cat([sums, grad_norm.to(wide_dtype)[None]]).cpu().unbind()
        results = iter([host.to(value.dtype) for host, value in zip(host_sums, local, strict=True)])
        loss = next(results)
        terms.update({term: next(results) for term in terms})
        metrics.update({name: (next(results), next(results)) for name in metrics})
        return loss, host_norm.to(grad_norm.dtype)


def _accumulate(
    terms: dict[str, Tensor],
    metrics: dict[str, tuple[Tensor, Tensor]],
    sums: dict[str, Tensor],
    new_metrics: dict[str, tuple[Tensor, Tensor]],
    totals: dict[str, int],
) -> None:
    for term, value in sums.items():
        mean = value.detach() / totals[term]
        terms[term] = terms[term] + mean if term in terms else mean
    for name, (total, count) in new_metrics.items():
        previous = metrics.get(name)
        metrics[name] = (
            (total.detach(), count) if previous is None else (previous[0] + total.detach(), previous[1] + count)
        )
