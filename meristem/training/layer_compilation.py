"""torch.compile of the backbone's layers: whether it repays its compile time in a run, and the compilation itself."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from meristem.checkpoint import disk
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe
from meristem.corpus.cache_folder import cache_dir
from meristem.dataset.feed import Feed
from meristem.distributed.parallel import fsdp_layers
from meristem.inputs.batch import Batch
from meristem.learning.learner import Learner
from meristem.training.budget import measure_step_cost
from meristem.training.precision import Precision
from meristem.training.run_result import RunContext
from meristem.training.settings import TrainSettings
from meristem.training.step_planning import step_batches
from meristem.training.train_state import LAYERS, NOTHING
from meristem.utils import untrusted_files

MIN_SECONDS_UNTIMED = 3600.0
"""Shortest run for which it may pay to compile only to learn what it gains."""
MIN_GAIN = 1.02
"""How much faster compiled steps must be: timings of the same step differ by as much."""
OPTIMISTIC_FLOPS = 2e11
"""FLOP/s of a core that a run is estimated with: it hardly takes less time."""
REPAYMENT = 1.5
"""How many times its compile time the run must save."""


@dataclass(frozen=True)
class CompileTimings:
    """Seconds of a step as it is and with compiled layers, and of compiling them."""

    eager: float
    compiled: float
    compiling: float

    @property
    def gain(self) -> float:
        """How many times as fast compiled steps are."""
        return self.eager / self.compiled

    def saved_seconds(self, run_seconds: float) -> float:
        """Seconds that compiling saves in a run of so many seconds without it."""
        return run_seconds * (1 - 1 / self.gain) - self.compiling

    def pays(self, run_seconds: float) -> bool:
        """Whether compiling is worth it in a run of so many seconds."""
        return self.gain >= MIN_GAIN and self.saved_seconds(run_seconds) >= (REPAYMENT - 1) * self.compiling


def compile_layers(learner: Learner) -> None:
    """Compile each layer of the backbone, or all of it where it has none; what is compiled stays in the cache folder.

    Layers of one shape share what is compiled, which takes a fraction of the time that a whole model takes.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir() / "inductor"))
    for layer in list(fsdp_layers(learner)) or [learner.model.backbone]:
        layer.compile()


def measure_compilation(
    learner: Learner,
    source: str,
    batches: Callable[[int], Sequence[Batch]],
    settings: TrainSettings,
    precision: Precision,
) -> CompileTimings:
    """Time steps of two copies of the learner, one of them compiled."""
    timings: list[tuple[float, float]] = []
    for prepare in (None, compile_layers):
        start = time.perf_counter()
        cost = measure_step_cost(learner, source, batches, settings, learner.model.device, precision, prepare=prepare)
        timings.append((cost.seconds, time.perf_counter() - start))
    (eager, eager_seconds), (compiled, compiled_seconds) = timings
    return CompileTimings(eager, compiled, max(0.0, compiled_seconds - eager_seconds))


def set_compilation(
    context: RunContext, feeds: Mapping[str, Feed], flops_per_token: Callable[[str], float], device: torch.device
) -> None:
    """Set `state.compiled`, once: as the user has set it, or by what compiling gains in the rest of the run."""
    state, settings, distributed = context.state, context.recipe.train, context.training_data.distributed
    if state.step:
        state.compiled = state.compiled or (LAYERS if settings.compile is True else NOTHING)
        if settings.compile != "auto" and settings.compile != (state.compiled == LAYERS):
            context.logger.log(f"Resuming with {state.compiled} compiled, as the run started (train.compile)")
        return
    compiles = settings.compile is True
    if settings.compile == "auto" and _may_compile(context, feeds, device):
        ((source, feed),) = feeds.items()

        def decide() -> bool:
            seconds = _run_seconds(context, flops_per_token(source))
            measure = partial(
                measure_compilation,
                context.learner, source, partial(step_batches, feed), settings, context.precision,
            )  # fmt: skip
            return choose_compilation(seconds, _shape(context), measure, context.logger.log)

        compiles = distributed.compute_on_rank_zero(decide)
    state.compiled = LAYERS if compiles else NOTHING


def _may_compile(context: RunContext, feeds: Mapping[str, Feed], device: torch.device) -> bool:
    """Whether compiling can be timed: steps of one shape on a CPU with a compiler."""
    settings = context.recipe.train
    return (
        isinstance(context.recipe, PretrainRecipe)
        and len(feeds) == 1
        and device.type == "cpu"
        and settings.privacy is None  # per-sample gradients are of layers as they are
        and not (settings.fsdp or settings.gradient_checkpointing or settings.batch_ramp or settings.length_ramp)
        and any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))
    )


def _run_seconds(context: RunContext, flops_per_token: float) -> float:
    """Seconds that the run takes at least: those of its budget, or those of its FLOPs at an optimistic speed."""
    kind, value = context.recipe.train.budget
    threads = torch.get_num_threads() * context.training_data.distributed.world_size
    return value * 60 if kind == "minutes" else context.planned_tokens * flops_per_token / (threads * OPTIMISTIC_FLOPS)


def _shape(context: RunContext) -> dict[str, object]:
    """What the timings of a step depend on, besides the machine."""
    recipe, train = context.recipe, context.recipe.train
    settings = [part.model_dump(mode="json") for parts in recipe.objectives.values() for part in parts]
    return {
        "model": recipe.model.model_dump(mode="json"),
        "vocabulary": context.training_data.tokenizer.vocab_size,
        "objectives": settings,
        "batch": [train.batch_tokens, train.micro_batch_tokens, context.training_data.distributed.world_size],
        "training": [context.precision, train.optimizer, torch.get_num_threads()],
    }


def choose_compilation(
    run_seconds: float, shape: dict[str, object], measure: Callable[[], CompileTimings], log: Callable[[str], None]
) -> bool:
    """Whether compiling pays in a run of so many seconds, by timings that are measured once for each `shape`."""
    timings = _cached_timings(path := _cache_path(shape))
    if timings is None:
        if run_seconds < MIN_SECONDS_UNTIMED:
            return False
        log("Measuring whether torch.compile pays in a run of this length …")
        timings = measure()
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.atomic_write(path, [untrusted_files.to_json(asdict(timings)).encode()])
    compiles = timings.pays(run_seconds)
    if compiles or run_seconds >= MIN_SECONDS_UNTIMED:
        decision = "so this run uses it" if compiles else "which this run would not repay"
        log(
            f"torch.compile makes steps {timings.gain:.2f} times as fast after {timings.compiling:.0f} s, {decision} "
            "(train.compile)"
        )
    return compiles


def _cached_timings(path: Path) -> CompileTimings | None:
    """The timings of an earlier run of this shape on this processor, if there are any."""
    try:
        saved = untrusted_files.read_json(path) if path.is_file() else None
        timings = CompileTimings(**{name: float(value) for name, value in saved.items()}) if saved else None
    except (MeristemError, AttributeError, TypeError, ValueError):
        return None
    return timings if timings is not None and min(timings.eager, timings.compiled) > 0 <= timings.compiling else None


def _cache_path(shape: dict[str, object]) -> Path:
    """A file named by what the timings depend on."""
    machine = {"processor": dict(torch.cpu.get_capabilities()), "torch": torch.__version__}
    digest = hashlib.sha256(untrusted_files.to_json({**machine, **shape}).encode()).hexdigest()[:24]
    return cache_dir() / "compile-timings" / f"{digest}.json"
