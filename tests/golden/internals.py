"""The only file of the golden tests that imports internal modules, so that a rename changes nothing else here.

It records training steps, interrupts a run at one of them, and skips what takes time and is not tested here.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from meristem.config.recipe import read_recipe, resolve_recipe
from meristem.dataset.prepare import prepare_dataset
from meristem.inputs.batch import RngFactory
from meristem.labelled import holdout
from meristem.reinforce.clicks import click_table
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import budget, run_result, trainer
from meristem.training.step import Stepper
from meristem.utils import randomness

STEP_METHOD = "train_step"
"""The method that takes one optimizer step: (step, total, source, micro-batches)."""
TASK_RUNS = ("reviews", "pairs", "squad", "choices", "translator", "shortener", "talker")
"""Untrained runs of the tasks without a golden run."""


@contextmanager
def quick_runs() -> Iterator[None]:
    """Context in which runs skip plots and the benchmark of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 16)
        patch.setattr(trainer, "peak_flops", lambda *_, **__: 1e9)
        patch.setattr(run_result, "can_draw", lambda: False)
        yield


@contextmanager
def watched_steps(*, stop_after: int | None = None) -> Iterator[list[dict[str, Any]]]:
    """Records every step's draws (batches and dropout seed); optionally sends SIGTERM during a step."""
    step_records: list[dict[str, Any]] = []
    original = getattr(Stepper, STEP_METHOD)

    def step_method(self: Any, step: int, total: int, source: str, batches: Any) -> Any:
        if stop_after is not None and step + 1 == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        record = {"step": step + 1, "source": source, "batches": batches_digest(batches)}
        step_result = original(self, step, total, source, batches)
        step_records.append({**record, "dropout_seed": torch.default_generator.initial_seed()})
        return step_result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, STEP_METHOD, step_method)
        yield step_records


def batches_digest(batches: Any) -> str:
    """Digest of all integers of a step (tokens, masks, targets, positions), independent of field names."""
    parts = [sorted(_digest(value) for value in _arrays(vars(batch))) for batch in batches]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays of a batch; its metadata have none that training uses."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _arrays(inner)
    elif isinstance(value, torch.Tensor):
        yield value.numpy()
    elif isinstance(value, list) and all(isinstance(item, int) for item in value):
        yield np.array(value)


def _digest(array: np.ndarray[Any, Any]) -> str:
    rounded = np.round(array * 1e4) if array.dtype.kind == "f" else array  # pixels: a picture has whole numbers of them
    return hashlib.sha256(repr(array.shape).encode() + rounded.astype("<i8").tobytes()).hexdigest()


PURPOSE_FUNCTIONS = (randomness.generator, randomness.stream_key, holdout._hash_key)
"""Functions that hash a purpose string given by their callers."""
PURPOSE_DRAWS = (randomness.SampleRng, RngFactory)
"""Types of parameters that are called with a purpose string."""
HASHED_TEMPLATES = (holdout._hash_key, click_table._hash_fraction)
"""Functions whose own f-string is hashed."""


def shard_keys(run: Path) -> dict[str, str]:
    """Source → recomputed cache key of a run's shards."""
    recipe = resolve_recipe(*read_recipe(run / "recipe.yaml"))
    tokenizer, words = Tokenizer.load(run / "tokenizer.json"), recipe.tokenizer.kind == "words"
    stores = {
        source.name: prepare_dataset(
            source.corpus, tokenizer, recipe.dataset, keep_words=words, console=Console(quiet=True)
        )
        for source in recipe.sources()
    }
    return {name: store.cache_key for name, store in stores.items()}


def server_app(runs: Iterable[Path], work_folder: Path) -> Any:
    """The server on golden runs and, for tasks without one, on untrained runs."""
    from serving.conftest import SHAPES  # here, because runs resume without a server's packages
    from serving.conftest import build_run as untrained_run

    from meristem.serving.app import create_app
    from meristem.serving.model_registry import ModelRegistry

    tasks = [untrained_run(work_folder / name, **SHAPES[name]) for name in TASK_RUNS]
    return create_app(ModelRegistry.open([*runs, *tasks]))
