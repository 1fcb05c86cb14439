"""One optimizer step for any objective: rollouts, gradient accumulation, clipping; skipped if it is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from meristem.config.errors import RecipeError
from meristem.distributed.parallel import ParallelLearner, full_tensor
from meristem.distributed.process_group import SINGLE_PROCESS
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import State
from meristem.learning.learner import Learner
from meristem.training.optim.lr_schedules import lr_factor
from meristem.training.optim.param_groups import set_lr_factor
from meristem.training.precision import Precision, autocast_context
from meristem.training.settings import TrainSettings
from meristem.utils.randomness import torch_seed


@dataclass(frozen=True, kw_only=True)
class UpdateResult:
    """One pass over the micro-batches of a step, and whether its gradient was applied."""

    terms: dict[str, Tensor]
    """Mean of each loss term; in the result of a step, a term without targets is left out, not 0."""
    metrics: dict[str, tuple[Tensor, Tensor]]
    loss: Tensor
    grad_norm: Tensor
    is_finite: bool


@dataclass(frozen=True, kw_only=True)
class StepResult(UpdateResult):
    """Result of one optimizer step: its last update; tensors stay on the device until they are logged."""

    source: str
    learning_rate: float
    tokens: int
    samples: int
    stop_reason: str | None = None
    """Why the objective stops the run; None to continue."""


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

    def __post_init__(self) -> None:
        self._parallel = self.parallel if self.parallel is not None else ParallelLearner(self.learner, SINGLE_PROCESS)
        self.distributed, self.reshard = self._parallel.distributed, self._parallel.reshard

    def train_step(self, step: int, total: int, source: str, batches: Sequence[Batch]) -> StepResult:
        """Take step number `step` of `total` on these micro-batches."""
        lr_share = lr_factor(self.settings, step, total)
        set_lr_factor(self.optimizers, lr_share)
        explored = [self._explore(step, micro_step, source, batch) for micro_step, batch in enumerate(batches)]
        objective = self.learner.objectives[source]
        names = list(objective.loss_weights)
        counts = self.distributed.all_reduce_sum(
            [sum(b.target_counts.get(term, 0) for b in explored) for term in names]
        )
        predicted_counts = dict(zip(names, map(round, counts), strict=True))
        totals = {term: max(1, count) for term, count in predicted_counts.items()}
        for _ in range(objective.updates_per_batch):
            update = self._update(step, source, explored, totals)
            if not update.is_finite:
                break
        if update.is_finite and objective.keeps_history:
            observations = self.distributed.all_gather_json(
                [observation for batch in explored for observation in objective.observations(batch)]
            )
            self.histories[source] = objective.update_history(self.histories.get(source), observations)
        tokens, samples = sum(b.num_tokens for b in explored), sum(len(b.sample_ids) for b in explored)
        if self.distributed.world_size > 1:
            tokens, samples = map(round, self.distributed.all_reduce_sum([tokens, samples]))
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

    def _update(self, step: int, source: str, batches: Sequence[Batch], totals: dict[str, int]) -> UpdateResult:
        """Accumulate gradients over all micro-batches, and step only if the loss and the gradient norm are finite."""
        terms: dict[str, Tensor] = {}
        metrics: dict[str, tuple[Tensor, Tensor]] = {}
        losses, states = [], {}
        for micro_step, batch in enumerate(batches):
            self._seed(step, micro_step)
            with self._parallel.gradient_sync(is_last=micro_step == len(batches) - 1):
                with autocast_context(self.precision, self.device):
                    outcome = self._parallel(source, batch, totals, self.memory.get((source, micro_step)))
                assert outcome.loss is not None
                self._parallel.backward(outcome.loss)
            losses.append(outcome.loss.detach())
            states[source, micro_step] = {key: value.detach() for key, value in outcome.state.items()}
            _accumulate(terms, metrics, outcome.loss_sums, outcome.metrics, totals)
        loss, grad_norm = torch.stack(losses).sum(), self._clip_gradients()
        if self.distributed.world_size > 1:
            loss = self._sum_over_processes(loss, terms, metrics)
        is_finite = bool(torch.isfinite(grad_norm) & torch.isfinite(loss))
        if is_finite:
            for optimizer in self.optimizers:
                optimizer.step()
            self.memory.update({key: state for key, state in states.items() if state})
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return UpdateResult(terms=terms, metrics=metrics, loss=loss, grad_norm=grad_norm, is_finite=is_finite)

    def _seed(self, step: int, micro_step: int) -> None:
        """Seed torch by the step alone, so that dropout and rollouts are the same after a resume."""
        seed = torch_seed(self.settings.seed, step, micro_step, self.distributed.rank)
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # a microsecond, where torch.manual_seed takes 150
        else:
            torch.manual_seed(seed)

    def _explore(self, step: int, micro_step: int, source: str, batch: Batch) -> Batch:
        self._seed(step, micro_step)
        return self.learner.explore(source, batch.to(self.device), self.histories.get(source))

    def _clip_gradients(self) -> Tensor:
        """Clip gradients by their total norm; returns the norm before clipping."""
        parameters = [p for p in self.learner.parameters() if p.grad is not None]
        grad_norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.settings.max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.settings.max_grad_norm, grad_norm)
        return full_tensor(grad_norm)

    def _sum_over_processes(
        self, loss: Tensor, terms: dict[str, Tensor], metrics: dict[str, tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Loss summed over all processes; `terms` and `metrics` are summed in place."""
        pairs = [value for pair in metrics.values() for value in pair]
        total_loss, *sums = self.distributed.all_reduce_sum([float(value) for value in (loss, *terms.values(), *pairs)])
        summed = iter(map(torch.tensor, sums))
        terms.update({term: next(summed) for term in terms})
        metrics.update({name: (next(summed), next(summed)) for name in metrics})
        return torch.tensor(total_loss)


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
