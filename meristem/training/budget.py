"""Compute as a budget: operations counted exactly, speed measured here, and both turned into steps."""

from __future__ import annotations

import copy
import gc
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import torch
from torch.utils.flop_counter import FlopCounterMode

from meristem.batch import Batch
from meristem.learning.learner import Learner
from meristem.training.optimizers import optimizers
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper

PEAK_SIZE = 2048
PEAK_SECONDS = 0.3
TRIAL_SECONDS = 3.0
LEAST_EVALUATED = 8192
"""Validation tokens below which a short run does not go."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one step costs."""

    flops: float
    seconds: float
    bytes: int
    """Memory above the process without the model."""
    tokens: int


@dataclass(frozen=True, kw_only=True)
class StepFlops:
    """Floating-point operations of one step, and the tokens it learned from."""

    explored: float
    """What an objective computes before it learns: rollouts token by token, the reference model, judges."""
    learned: float
    """Forward and backward, as often as the objective updates on what it explored."""
    tokens: int
    """After exploration, as the loop counts them."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.explored + self.learned

    @property
    def per_token(self) -> float:
        """For each token that the loop counts."""
        return self.total / max(1, self.tokens)


def step_flops(learner: Learner, source: str, batches: Sequence[Batch]) -> StepFlops:
    """Count one step: exploration as it runs, learning on the meta device; only logits that are needed count."""
    ghost = copy.deepcopy(learner).to("meta").train()
    with _counter() as exploring:
        explored = [learner.explore(source, batch.to(learner.model.device)) for batch in batches]
    with _counter() as learning:
        for batch in explored:
            far = batch.to(torch.device("meta"))
            outcome = ghost(source, far, {term: max(1, n) for term, n in batch.counts.items()})
            outcome.loss.backward()
    updates = learner.objectives[source].updates
    return StepFlops(
        explored=float(exploring.get_total_flops()),
        learned=float(learning.get_total_flops()) * updates,
        tokens=sum(batch.tokens for batch in explored),
    )


def flops_of(learner: Learner, source: str, batches: Sequence[Batch]) -> float:
    """Operations of one step."""
    return step_flops(learner, source, batches).total


def _counter() -> FlopCounterMode:
    """Counts what torch's own leaves out: sums of products in place, and attention as CPUs fuse it."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: _product, fused: _attention})


def _product(_sum: torch.Size, a: torch.Size, b: torch.Size, **_: object) -> int:
    return 2 * a[0] * a[1] * b[1]


def _attention(q: torch.Size, k: torch.Size, v: torch.Size, *_more: object, **_: object) -> int:
    """q kᵀ and its product with v, for every head."""
    rows, heads, queries, width = q
    return 2 * rows * heads * queries * k[2] * (width + v[3])


def peak_flops(
    device: torch.device, *, dtype: torch.dtype = torch.float32, repeats: int = 5, seconds: float = PEAK_SECONDS
) -> float:
    """Multiplications and additions a second in a 2048³ product of this precision: what a step could do at best.

    The best of at least `repeats` products: others that use the machine meanwhile can only make one slower. While a
    run is faster than that, the loop takes its speed for the peak (an MFU above 1 would only mean a peak too low).
    """
    a = torch.randn(PEAK_SIZE, PEAK_SIZE, device=device).to(dtype)
    b = torch.randn(PEAK_SIZE, PEAK_SIZE, device=device).to(dtype)
    best, until = _timed(lambda: a @ b, device), time.perf_counter() + seconds
    for number in count():
        if number >= repeats and time.perf_counter() > until:
            break
        best = min(best, _timed(lambda: a @ b, device))
    return 2 * PEAK_SIZE**3 / best


def _timed(action: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    action()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def measure(
    learner: Learner,
    source: str,
    batches: Callable[[int], Sequence[Batch]],
    settings: TrainSettings,
    device: torch.device,
    *,
    seconds: float = TRIAL_SECONDS,
) -> Cost:
    """Real steps on a copy of the model, so that measuring leaves no trace."""
    before = memory_now(device)
    trial = copy.deepcopy(learner).to(device).train()
    stepper = Stepper(learner=trial, optimizers=optimizers(trial.model, settings), settings=settings, device=device)
    first = list(batches(0))
    flops = step_flops(learner, source, first)
    stepper.take(0, 1000, source, first)  # the first one allocates
    took: list[float] = []
    most = before
    while len(took) < 2 or (sum(took) < seconds and len(took) < 20):
        step = len(took) + 1
        took.append(_timed(partial(stepper.take, step, 1000, source, batches(step)), device))
        most = max(most, memory_now(device))
    stepper.optimizers.clear()
    gc.collect()
    return Cost(
        flops=flops.total,
        seconds=sorted(took)[len(took) // 2],
        bytes=max(0, most - before),
        tokens=flops.tokens,
    )


def mean_cost(costs: Mapping[str, Cost], shares: Mapping[str, float]) -> Cost:
    """The mean over sources, each weighted by its share of the steps; memory is that of the largest."""
    return Cost(
        flops=sum(shares[name] * cost.flops for name, cost in costs.items()),
        seconds=sum(shares[name] * cost.seconds for name, cost in costs.items()),
        bytes=max(cost.bytes for cost in costs.values()),
        tokens=round(sum(shares[name] * cost.tokens for name, cost in costs.items())),
    )


def memory_now(device: torch.device) -> int:
    """Bytes in use: of the accelerator, or the highest the process ever had."""
    if device.type != "cpu":
        return int(torch.accelerator.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def evaluation_tokens(settings: TrainSettings, planned: float) -> int:
    """Tokens of one evaluation: the default is for runs that read four times as many, and less in a shorter one."""
    default: int = TrainSettings.model_fields["evaluate_tokens"].default
    if settings.evaluate_tokens != default or planned >= 4 * default:
        return settings.evaluate_tokens
    return max(LEAST_EVALUATED, int(planned / 4))


def evaluations(planned: float, each: float) -> int:
    """How many evaluations of so many tokens a run of `planned` tokens has: ten, or as many as cost it a tenth.

    Reading costs a third of what learning does.
    """
    return max(1, min(10, int(0.3 * planned / max(1.0, each))))


def planned_steps(
    settings: TrainSettings, *, tokens_per_step: float, steps_per_epoch: float, cost: Callable[[], Cost]
) -> int:
    """How many steps the budget buys; speed is measured only where the budget asks for it."""
    kind, value = settings.budget
    match kind:
        case "steps":
            number = value
        case "epochs":
            number = value * steps_per_epoch
        case "tokens":
            number = value / tokens_per_step
        case "flops":
            number = value / cost().flops
        case _:
            number = value * 60 / cost().seconds
    return max(1, round(number))
