"""One optimizer step, the same for everything there is: explore, sum, divide, and take it only if it is finite."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from meristem.batch import Batch, State
from meristem.learning.learner import Learner
from meristem.learning.spread import Spread, whole
from meristem.learning.team import ALONE
from meristem.randomness import torch_seed
from meristem.training.optimizers import set_rate
from meristem.training.schedules import factor
from meristem.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a step gave; tensors stay on the device until somebody logs them."""

    source: str
    terms: dict[str, Tensor]
    """The mean of each term that predicted anything; nothing predicted is no loss of 0."""
    metrics: dict[str, tuple[Tensor, Tensor]]
    loss: Tensor
    norm: Tensor
    finite: bool
    rate: float
    tokens: int
    samples: int
    stop: str | None = None
    """Why the objective wants no more steps."""


@dataclass(frozen=True, kw_only=True)
class _Update:
    """One pass over the micro-batches of a step, and whether its gradient was taken."""

    terms: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor]]
    loss: Tensor
    norm: Tensor
    finite: bool


def device_of(settings: TrainSettings) -> torch.device:
    """The device a run uses."""
    if settings.device != "auto":
        return torch.device(settings.device)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found if found is not None else torch.device("cpu")


def dtype_of(settings: TrainSettings, device: torch.device) -> torch.dtype:
    """The precision that products are computed in."""
    wanted = settings.precision
    if wanted == "auto":
        wanted = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def precision_of(settings: TrainSettings, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bfloat16 where it helps, else nothing."""
    dtype = dtype_of(settings, device)
    return torch.autocast(device.type, dtype=dtype) if dtype == torch.bfloat16 else nullcontext()


@dataclass(kw_only=True)
class Stepper:
    """The learner with its optimizers, and the memory that backbones keep between steps."""

    learner: Learner
    optimizers: list[torch.optim.Optimizer]
    settings: TrainSettings
    device: torch.device
    spread: Spread | None = None
    """The learner over several processes; alone unless given."""
    memory: dict[tuple[str, int], State] = field(default_factory=dict)
    histories: dict[str, Any] = field(default_factory=dict)
    """Per source the plain data that its objective carries from step to step; saved with the train state."""

    def __post_init__(self) -> None:
        self._learn = self.spread if self.spread is not None else Spread(self.learner, ALONE)
        self.team, self.settle = self._learn.team, self._learn.settle

    def take(self, step: int, total: int, source: str, batches: Sequence[Batch]) -> Taken:
        """Step number `step` of `total` on these micro-batches."""
        share = factor(self.settings, step, total)
        set_rate(self.optimizers, share)
        ready = [self._explored(step, micro, source, batch) for micro, batch in enumerate(batches)]
        objective = self.learner.objectives[source]
        names = list(objective.weights)
        counts = self.team.sum([sum(b.counts.get(term, 0) for b in ready) for term in names])
        predicted = dict(zip(names, map(round, counts), strict=True))
        totals = {term: max(1, number) for term, number in predicted.items()}
        for _ in range(objective.updates):
            made = self._update(step, source, ready, totals)
            if not made.finite:
                break
        if made.finite and objective.keeps_history:
            seen = self.team.all_gather_json([one for batch in ready for one in objective.observations(batch)])
            self.histories[source] = objective.remember(self.histories.get(source), seen)
        tokens, samples = sum(b.tokens for b in ready), sum(len(b.ids) for b in ready)
        if self.team.size > 1:
            tokens, samples = map(round, self.team.sum([tokens, samples]))
        return Taken(
            source=source,
            terms={term: value for term, value in made.terms.items() if predicted.get(term)},
            metrics=made.metrics,
            loss=made.loss,
            norm=made.norm,
            finite=made.finite,
            rate=self.settings.rate * share,
            tokens=tokens,
            samples=samples,
            stop=objective.settle(self.learner.model, made.metrics) if made.finite else None,
        )

    def _update(self, step: int, source: str, ready: Sequence[Batch], totals: dict[str, int]) -> _Update:
        """Sum the gradients of all micro-batches, and take the step only if all of it is finite."""
        terms: dict[str, Tensor] = {}
        metrics: dict[str, tuple[Tensor, Tensor]] = {}
        losses, states = [], {}
        for micro, batch in enumerate(ready):
            self._seed(step, micro)
            with self._learn.summing(last=micro == len(ready) - 1):
                with precision_of(self.settings, self.device):
                    outcome = self._learn(source, batch, totals, self.memory.get((source, micro)))
                assert outcome.loss is not None
                self._learn.backward(outcome.loss)
            losses.append(outcome.loss.detach())
            states[source, micro] = {key: value.detach() for key, value in outcome.state.items()}
            _add(terms, metrics, outcome.sums, outcome.metrics, totals)
        loss, norm = torch.stack(losses).sum(), self._norm()
        if self.team.size > 1:
            loss = self._summed(loss, terms, metrics)
        finite = bool(torch.isfinite(norm) & torch.isfinite(loss))
        if finite:
            for optimizer in self.optimizers:
                optimizer.step()
            self.memory.update({key: state for key, state in states.items() if state})
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return _Update(terms=terms, metrics=metrics, loss=loss, norm=norm, finite=finite)

    def _seed(self, step: int, micro: int) -> None:
        """What torch draws (dropout, rollouts) follows from the step alone."""
        seed = torch_seed(self.settings.seed, step, micro, self.team.rank)
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # a microsecond, where torch.manual_seed takes 150
        else:
            torch.manual_seed(seed)

    def _explored(self, step: int, micro: int, source: str, batch: Batch) -> Batch:
        self._seed(step, micro)
        return self.learner.explore(source, batch.to(self.device), self.histories.get(source))

    def _norm(self) -> Tensor:
        """The norm of all gradients, which are scaled down where it exceeds the clip."""
        parameters = [p for p in self.learner.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.settings.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.settings.clip, norm)
        return whole(norm)

    def _summed(self, loss: Tensor, terms: dict[str, Tensor], metrics: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
        """What a step is told by, over all processes; terms and metrics in their places."""
        pairs = [value for pair in metrics.values() for value in pair]
        whole_loss, *rest = self.team.sum([float(value) for value in (loss, *terms.values(), *pairs)])
        found = iter(map(torch.tensor, rest))
        terms.update({term: next(found) for term in terms})
        metrics.update({name: (next(found), next(found)) for name in metrics})
        return torch.tensor(whole_loss)


def _add(
    terms: dict[str, Tensor],
    metrics: dict[str, tuple[Tensor, Tensor]],
    sums: dict[str, Tensor],
    more: dict[str, tuple[Tensor, Tensor]],
    totals: dict[str, int],
) -> None:
    for term, value in sums.items():
        share = value.detach() / totals[term]
        terms[term] = terms[term] + share if term in terms else share
    for name, (total, number) in more.items():
        before = metrics.get(name)
        metrics[name] = (total.detach(), number) if before is None else (before[0] + total.detach(), before[1] + number)
