"""The only file of these tests that names private modules: a renaming has nothing else to follow.

It watches training steps, interrupts a run at one of them, and leaves out what costs time and is not tested here.
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

from meristem import randomness
from meristem.batch import Draws
from meristem.labelled import holding
from meristem.recipe import read, resolve
from meristem.reinforce.clicks import table as click_table
from meristem.store.prepare import store_for
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import budget, ending, running
from meristem.training.step import Stepper

STEP_METHOD = "take"
"""The method that takes one optimizer step: (step, total, source, micro-batches)."""
TASK_RUNS = ("reviews", "pairs", "squad", "choices", "translator", "shortener", "talker")
"""Untrained runs of the tasks that no golden run has."""


@contextmanager
def quick_runs() -> Iterator[None]:
    """Runs without a picture of their curves, and without a measurement of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 16)
        patch.setattr(running, "peak_flops", lambda *_, **__: 1e9)
        patch.setattr(ending, "can_draw", lambda: False)
        yield


@contextmanager
def watched_steps(*, stop_after: int | None = None) -> Iterator[list[dict[str, Any]]]:
    """Every step's draws: its batches and the seed of its dropout; perhaps SIGTERM while a step is being taken."""
    seen: list[dict[str, Any]] = []
    original = getattr(Stepper, STEP_METHOD)

    def step_method(self: Any, step: int, total: int, source: str, batches: Any) -> Any:
        if stop_after is not None and step + 1 == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        drawn = {"step": step + 1, "source": source, "batches": batches_digest(batches)}
        taken = original(self, step, total, source, batches)
        seen.append({**drawn, "dropout_seed": torch.default_generator.initial_seed()})
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, STEP_METHOD, step_method)
        yield seen


def batches_digest(batches: Any) -> str:
    """Of all integers that a step reads: tokens, what is masked, targets, places; whatever the fields are called."""
    parts = [sorted(_digest(value) for value in _arrays(vars(batch))) for batch in batches]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays in a batch; its notes, a list of mappings, hold none that training reads."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _arrays(inner)
    elif isinstance(value, torch.Tensor):
        yield value.numpy()
    elif isinstance(value, list) and all(isinstance(one, int) for one in value):
        yield np.array(value)


def _digest(array: np.ndarray[Any, Any]) -> str:
    whole = np.round(array * 1e4) if array.dtype.kind == "f" else array  # pixels: a picture has whole numbers of them
    return hashlib.sha256(repr(array.shape).encode() + whole.astype("<i8").tobytes()).hexdigest()


PURPOSE_FUNCTIONS = (randomness.generator, randomness.key, holding._number)
"""Functions that hash a purpose string which their callers write out."""
PURPOSE_DRAWS = (randomness.Draw, Draws)
"""Types of parameters that are called with a purpose string."""
HASHED_TEMPLATES = (holding._number, click_table._share)
"""Functions whose own f-string is hashed."""


def shard_keys(run: Path) -> dict[str, str]:
    """By source the key under which a run's shards are cached, computed anew."""
    recipe = resolve(*read(run / "recipe.yaml"))
    tokenizer, words = Tokenizer.load(run / "tokenizer.json"), recipe.tokenizer.kind == "words"
    stores = {
        source.name: store_for(source.corpus, tokenizer, recipe.store, words=words, console=Console(quiet=True))
        for source in recipe.sources()
    }
    return {name: store.key for name, store in stores.items()}


def server_app(runs: Iterable[Path], place: Path) -> Any:
    """The server over golden runs and, for the tasks that no golden run has, over untrained ones."""
    from serving.conftest import SHAPES  # here, because runs resume without a server's packages
    from serving.conftest import made as untrained_run

    from meristem.serving.app import create_app
    from meristem.serving.hub import Hub

    tasks = [untrained_run(place / name, **SHAPES[name]) for name in TASK_RUNS]
    return create_app(Hub.open([*runs, *tasks]))
