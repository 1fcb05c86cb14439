"""Compute budget: FLOPs counted exactly, step time and peak FLOP/s measured, and budgets converted to steps."""

from __future__ import annotations

import copy
import gc
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count

import torch
from torch.utils.flop_counter import FlopCounterMode

from meristem.inputs.batch import Batch
from meristem.learning.learner import Learner
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import Precision
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper

PEAK_SIZE = 2048
PEAK_SECONDS = 0.3
PEAK_REPEATS = 5
TRIAL_SECONDS = 3.0
MIN_EVALUATION_TOKENS = 8192
"""Lower bound of validation tokens in a short run."""


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Cost of one optimizer step."""

    flops: float
    seconds: float
    memory_bytes: int
    """Memory in addition to that of the process without the model."""
    tokens: int


@dataclass(frozen=True, kw_only=True)
class StepFlops:
    """FLOPs of one step, and its tokens."""

    explore_flops: float
    """Before the update: rollouts token by token, the reference model, reward models."""
    train_flops: float
    """Forward and backward passes, times the objective's updates per batch."""
    tokens: int
    """Tokens after rollouts, as the loop counts them."""

    @property
    def total(self) -> float:
        """FLOPs of the whole step."""
        return self.explore_flops + self.train_flops

    @property
    def per_token(self) -> float:
        """FLOPs per token."""
        return self.total / max(1, self.tokens)


def step_flops(learner: Learner, source: str, batches: Sequence[Batch]) -> StepFlops:
    """Count the FLOPs of one step: rollouts as they run, training on the meta device; unneeded logits are left out."""
    meta_learner = copy.deepcopy(learner).to("meta").train()
    with _flop_counter() as explore_counter:
        explored_batches = [learner.explore(source, batch.to(learner.model.device)) for batch in batches]
    with _flop_counter() as train_counter:
        for batch in explored_batches:
            meta_batch = batch.to(torch.device("meta"))
            outcome = meta_learner(source, meta_batch, {term: max(1, n) for term, n in batch.target_counts.items()})
            outcome.loss.backward()
    updates = learner.objectives[source].updates_per_batch
    return StepFlops(
        explore_flops=float(explore_counter.get_total_flops()),
        train_flops=float(train_counter.get_total_flops()) * updates,
        tokens=sum(batch.num_tokens for batch in explored_batches),
    )


def total_step_flops(learner: Learner, source: str, batches: Sequence[Batch]) -> float:
    """FLOPs of one step."""
    return step_flops(learner, source, batches).total


def _flop_counter() -> FlopCounterMode:
    """FLOP counter with what torch's own leaves out: in-place addmm, and fused attention on CPUs."""
    fused_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.addmm_: _addmm_flops, fused_attention: _attention_flops}
    )


def _addmm_flops(_sum: torch.Size, a: torch.Size, b: torch.Size, **_: object) -> int:
    return 2 * a[0] * a[1] * b[1]


def _attention_flops(q: torch.Size, k: torch.Size, v: torch.Size, *_more: object, **_: object) -> int:
    """q kᵀ and its product with v, for every head."""
    batch_size, num_heads, queries, head_dim = q
    return 2 * batch_size * num_heads * queries * k[2] * (head_dim + v[3])


def peak_flops(device: torch.device, *, dtype: torch.dtype = torch.float32) -> float:
    """Peak FLOP/s in matrix products of this precision, measured once per process and number of threads.

    If a run is faster, the loop takes its speed as the peak (an MFU above 1 would only mean that the peak was measured
    too low).
    """
    return _measure_peak(device, dtype, torch.get_num_threads())


@cache
def _measure_peak(device: torch.device, dtype: torch.dtype, num_threads: int) -> float:
    """The best of at least five products of 2048³, since other processes can only slow one down."""
    a = torch.randn(PEAK_SIZE, PEAK_SIZE, device=device).to(dtype)
    b = torch.randn(PEAK_SIZE, PEAK_SIZE, device=device).to(dtype)
    best_seconds, deadline = _time_call(lambda: a @ b, device), time.perf_counter() + PEAK_SECONDS
    for iteration in count():
        if iteration >= PEAK_REPEATS and time.perf_counter() > deadline:
            break
        best_seconds = min(best_seconds, _time_call(lambda: a @ b, device))
    return 2 * PEAK_SIZE**3 / best_seconds


def _time_call(action: Callable[[], object], device: torch.device) -> float:
    _synchronize(device)
    start = time.perf_counter()
    action()
    _synchronize(device)
    return time.perf_counter() - start


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def measure_step_cost(
    learner: Learner,
    source: str,
    batches: Callable[[int], Sequence[Batch]],
    settings: TrainSettings,
    device: torch.device,
    precision: Precision = "float32",
    *,
    seconds: float = TRIAL_SECONDS,
    prepare: Callable[[Learner], None] | None = None,
) -> StepCost:
    """Measure time and memory of real steps on a copy of the model, which itself stays unchanged.

    `prepare` may change the copy before it is timed.
    """
    memory_before = memory_in_use(device)
    trial_learner = copy.deepcopy(learner).to(device).train()
    if prepare is not None:
        prepare(trial_learner)
    stepper = Stepper(
        learner=trial_learner,
        optimizers=build_optimizers(trial_learner.model, settings),
        settings=settings,
        device=device,
        precision=precision,
    )
    first_batches = list(batches(0))
    flops = step_flops(learner, source, first_batches)
    stepper.train_step(0, 1000, source, first_batches)  # warm-up: the first step allocates
    durations: list[float] = []
    peak_memory = memory_before
    while len(durations) < 2 or (sum(durations) < seconds and len(durations) < 20):
        step = len(durations) + 1
        durations.append(_time_call(partial(stepper.train_step, step, 1000, source, batches(step)), device))
        peak_memory = max(peak_memory, memory_in_use(device))
    stepper.optimizers.clear()
    gc.collect()
    return StepCost(
        flops=flops.total,
        seconds=sorted(durations)[len(durations) // 2],
        memory_bytes=max(0, peak_memory - memory_before),
        tokens=flops.tokens,
    )


def mean_cost(costs: Mapping[str, StepCost], shares: Mapping[str, float]) -> StepCost:
    """Mean over sources, weighted by their share of the steps; memory is the maximum."""
    return StepCost(
        flops=sum(shares[name] * cost.flops for name, cost in costs.items()),
        seconds=sum(shares[name] * cost.seconds for name, cost in costs.items()),
        memory_bytes=max(cost.memory_bytes for cost in costs.values()),
        tokens=round(sum(shares[name] * cost.tokens for name, cost in costs.items())),
    )


def memory_in_use(device: torch.device) -> int:
    """Peak memory in bytes: of the accelerator, or of the process on a CPU."""
    if device.type != "cpu":
        return int(torch.accelerator.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def evaluation_tokens(settings: TrainSettings, planned_tokens: float) -> int:
    """Tokens of one evaluation: the setting; by default at most a quarter of the tokens that the run reads."""
    default: int = TrainSettings.model_fields["evaluate_tokens"].default
    if settings.evaluate_tokens != default or planned_tokens >= 4 * default:
        return settings.evaluate_tokens
    return max(MIN_EVALUATION_TOKENS, int(planned_tokens / 4))


def evaluation_count(planned_tokens: float, tokens_per_evaluation: float) -> int:
    """Number of evaluations in a run of `planned_tokens` tokens: ten, or as many as cost a tenth of its training.

    A forward pass costs a third of a training step.
    """
    return max(1, min(10, int(0.3 * planned_tokens / max(1.0, tokens_per_evaluation))))


def planned_steps(
    settings: TrainSettings, *, tokens_per_step: float, steps_per_epoch: float, measure_cost: Callable[[], StepCost]
) -> int:
    """Number of steps in the budget; speed is measured only for a budget in FLOPs or minutes."""
    kind, value = settings.budget
    match kind:
        case "steps":
            step_count = value
        case "epochs":
            step_count = value * steps_per_epoch
        case "tokens":
            step_count = value / tokens_per_step
        case "flops":
            step_count = value / measure_cost().flops
        case _:
            step_count = value * 60 / measure_cost().seconds
    return max(1, round(step_count))
