"""Threads or processes: whether a CPU's N cores train faster as one process with N threads or as N with one each."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from meristem.blocks.meta_init import on_meta_device
from meristem.checkpoint import disk
from meristem.checkpoint.folder_layout import folder_name, list_steps
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import FinetuneRecipe, PretrainRecipe, Recipe
from meristem.corpus.cache_folder import cache_dir
from meristem.describe.describe_recipe import BYTES_PER_TOKEN, count_flops_and_parameters
from meristem.describe.process_timing import step_seconds
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.training.step import resolve_device
from meristem.utils import untrusted_files

MIN_GAIN = 1.05
"""How much faster several processes must be: they take longer to start, and more memory."""
MIN_SECONDS = 180.0
"""Shortest run for which it pays to start several processes, which takes some seconds."""
MIN_SECONDS_UNTIMED = 600.0
"""Shortest run for which it pays to measure first, which takes some seconds more."""
OPTIMISTIC_FLOPS = 1e11
"""FLOP/s of a core that a run is estimated with: it hardly takes less time."""
TRAINING_FLOPS = 6
"""FLOPs of a training step per parameter and token."""
MIN_SAMPLE_TOKENS = 16
"""Tokens of a sample that a task's run is estimated with."""
STATE_BYTES = 16
"""Bytes per parameter of each process: weight, gradient, and two moments."""
MAX_MEMORY_SHARE = 0.5

Choosable = PretrainRecipe | FinetuneRecipe
"""Recipes that may be trained by several processes without being asked; those with rewards generate in one."""


@dataclass(frozen=True)
class StepTimings:
    """Seconds of a step in one process with N threads, and in N processes with one thread."""

    threads: float
    processes: float

    @property
    def speedup(self) -> float:
        """How many times as fast several processes are."""
        return self.threads / self.processes


def choose_processes(recipe: Recipe, out: Path, console: Console, *, fresh: bool = False) -> int:
    """Number of processes to train with: that of the run to be resumed, or what is faster on this machine."""
    cores = torch.get_num_threads()  # physical cores that this process may use
    if not isinstance(recipe, PretrainRecipe | FinetuneRecipe) or not _may_choose(recipe, cores):
        return 1
    if not fresh and (recorded := _recorded_processes(out)):
        return recorded if recorded <= cores else 1
    flops_per_token, parameters = _flops_and_parameters(recipe)
    seconds = _estimated_tokens(recipe) * flops_per_token / (cores * OPTIMISTIC_FLOPS)
    if recipe.train.budget[0] == "minutes":
        seconds = recipe.train.budget[1] * 60
    if seconds < MIN_SECONDS or parameters * STATE_BYTES * cores > MAX_MEMORY_SHARE * _free_memory():
        return 1
    timings = _cached_timings(recipe, cores)
    if timings is None:
        if seconds < MIN_SECONDS_UNTIMED:
            return 1
        console.print("Measuring whether threads or processes are faster here …", highlight=False)
        timings = _measure(recipe, cores)
    if timings is None or timings.speedup < MIN_GAIN:
        return 1
    line = f"{cores} processes of one thread are {timings.speedup:.2f} times as fast as {cores} threads (--processes 1)"
    console.print(line, highlight=False, soft_wrap=True)
    return cores


def _may_choose(recipe: Choosable, cores: int) -> bool:
    """Whether several processes can train this recipe here, and the user has not decided it."""
    user_decided = recipe.train.threads is not None or "OMP_NUM_THREADS" in os.environ or "WORLD_SIZE" in os.environ
    if isinstance(recipe, FinetuneRecipe):
        full_rows, has_one_run = recipe.train.batch_samples, not recipe.grid.has_several_runs
    else:
        full_rows, has_one_run = recipe.train.batch_tokens // recipe.model.max_length, True
    rows = int((recipe.train.batch_ramp_start if recipe.train.batch_ramp else 1.0) * full_rows)
    return (
        not user_decided
        and has_one_run
        and sys.platform == "linux"  # elsewhere gloo is not tested
        and cores > 1
        and rows >= cores
        and resolve_device(recipe.train).type == "cpu"
    )


def _recorded_processes(out: Path) -> int:
    """Number of processes that the run in this folder started with; 0 if there is none to resume."""
    checkpoints = RunFolder(out).checkpoints
    steps = list_steps(checkpoints) if RunFolder(out).exists() else []
    if not steps:
        return 0
    try:
        state = untrusted_files.read_json_object(checkpoints / folder_name(max(steps)) / "state.json")
    except (MeristemError, OSError):
        return 1  # resuming says what is wrong with it
    processes = state.get("processes")
    return processes if isinstance(processes, int) and processes > 0 else 1


def _flops_and_parameters(recipe: Choosable) -> tuple[float, int]:
    """FLOPs per token and parameters; of a task those of its backbone without embeddings, which needs no samples."""
    if isinstance(recipe, PretrainRecipe):
        return count_flops_and_parameters(recipe)
    with on_meta_device():
        backbone = MODEL_FAMILIES[recipe.model.family](recipe.model, recipe.tokenizer.vocab_size)
    parameters = sum(p.numel() for p in backbone.parameters())
    return TRAINING_FLOPS * (parameters - backbone.embedding().weight.numel()), parameters


def _estimated_tokens(recipe: Choosable) -> float:
    """Tokens of the budget; an epoch has those of the sources that are files, and 0 if none is."""
    train = recipe.train
    kind, value = train.budget
    match kind:
        case "steps":
            is_task = isinstance(recipe, FinetuneRecipe)
            return value * (train.batch_samples * MIN_SAMPLE_TOKENS if is_task else train.batch_tokens)
        case "tokens":
            return value
        case "flops":
            return value / _flops_and_parameters(recipe)[0]
        case "epochs":
            return value * sum(map(_source_bytes, map(Path, _source_names(recipe)))) / BYTES_PER_TOKEN
    return 0.0


def _source_names(recipe: Choosable) -> Sequence[str]:
    """The sources of training data, files or not."""
    if isinstance(recipe, PretrainRecipe):
        return [name for source in recipe.sources() for name in source.corpus.sources]
    files = recipe.data.train or ()
    return (files,) if isinstance(files, str) else files


def _source_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _free_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _measure(recipe: Choosable, cores: int) -> StepTimings | None:
    """Both timings, which are cached; None if one of them did not work."""
    with_threads = step_seconds(recipe, processes=1, threads=cores)
    with_processes = step_seconds(recipe, processes=cores, threads=1) if with_threads is not None else None
    if with_threads is None or with_processes is None:
        return None
    timings = {"threads": with_threads, "processes": with_processes}
    path = _cache_path(recipe, cores)
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.atomic_write(path, [untrusted_files.to_json(timings).encode()])
    return StepTimings(**timings)


def _cached_timings(recipe: Choosable, cores: int) -> StepTimings | None:
    """The timings of an earlier run of this shape on this processor, if there are any."""
    path = _cache_path(recipe, cores)
    if not path.is_file():
        return None
    try:
        saved = untrusted_files.read_json(path)
    except MeristemError:
        return None
    valid = isinstance(saved, dict) and all(
        isinstance(saved.get(name), float) and saved[name] > 0 for name in ("threads", "processes")
    )
    return StepTimings(saved["threads"], saved["processes"]) if valid else None


def _cache_path(recipe: Choosable, cores: int) -> Path:
    """A file named by what the timings depend on: processor, torch, model, objectives and batch."""
    if isinstance(recipe, FinetuneRecipe):
        parts, batch = [recipe.task, recipe.data, recipe.start], recipe.train.batch_samples
    else:
        parts, batch = [item for source in recipe.sources() for item in source.objective], recipe.train.batch_tokens
    shape = {
        "processor": [cores, dict(torch.cpu.get_capabilities())],
        "torch": torch.__version__,
        "model": recipe.model.model_dump(mode="json"),
        "vocabulary": recipe.tokenizer.vocab_size,
        "objectives": [part.model_dump(mode="json") for part in parts],
        "batch": [batch, recipe.train.micro_batch_tokens],
        "training": [recipe.train.precision, recipe.train.optimizer, recipe.train.gradient_checkpointing],
    }
    digest = hashlib.sha256(untrusted_files.to_json(shape).encode()).hexdigest()[:24]
    return cache_dir() / "step-timings" / f"{digest}.json"
