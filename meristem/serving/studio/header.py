"""Facts for a run's header: parameter count, training data, elapsed time, time left, tokens per second."""

from __future__ import annotations

import math
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint import disk, layout
from meristem.checkpoint.manifest import MODEL
from meristem.checkpoint.run import Run
from meristem.serving.studio.metrics_tail import KEPT, head, metrics_tail, stamp
from meristem.serving.studio.standing import Standing, finished_of

HEADER_BYTES = 16 << 20
"""The largest header of a safetensors file that is read."""
LONGEST = 200
"""Characters of a name of data."""


def header(run: Run, recipe: dict[str, Any], now: Standing) -> dict[str, Any]:
    """All of them; None where a fact is not known (yet)."""
    tail = metrics_tail(run.metrics_path)
    used = (finished_of(run) or {}).get("used")
    minutes = used.get("minutes") if isinstance(used, dict) else None
    return {
        "parameters": None if now.saved is None else parameters(run, now.saved),
        "data": data_of(recipe),
        "data_size": _data_size(run.log_path, stamp(run.log_path)[0]),
        "seconds": minutes * 60 if isinstance(minutes, int | float) else tail.seconds,
        "seconds_left": seconds_left(run, recipe, now),
        "tokens": tail.tokens,
        "tokens_per_second": tail.tokens_per_second,
    }


def seconds_left(run: Run, recipe: dict[str, Any], now: Standing) -> float | None:
    """Estimated training time until the budget is used up; None where the run does not train."""
    tail, train = metrics_tail(run.metrics_path), recipe.get("train")
    if now.state != "training":
        return None
    minutes = train.get("minutes") if isinstance(train, dict) else None
    if isinstance(minutes, int | float) and tail.seconds is not None:
        return max(0.0, minutes * 60 - tail.seconds)
    if now.total is None or tail.seconds_per_step is None:
        return None
    return max(0, now.total - now.step) * tail.seconds_per_step


def parameters(run: Run, step: int) -> int | None:
    """The number of parameters in a checkpoint, from the shapes in its header: no weights are read."""
    path = run.checkpoints / layout.folder_name(step) / MODEL
    return _parameters(path, stamp(path))


@lru_cache(maxsize=KEPT)
def _parameters(path: Path, _stamp: tuple[int, int, int]) -> int | None:
    try:
        with disk.regular(path) as file:
            size = int.from_bytes(os.read(file, 8), "little")
            if size > HEADER_BYTES:
                return None
            tensors = bounded.strict(os.read(file, size))
        shapes = [entry["shape"] for name, entry in tensors.items() if name != "__metadata__"]
        return sum(math.prod(map(int, shape)) for shape in shapes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def data_of(recipe: dict[str, Any]) -> str:
    """What a run trains on, as its recipe names it: the training file of a task, or the sources of its text."""
    if isinstance(data := recipe.get("data"), dict) and data.get("train"):
        return str(data["train"])[:LONGEST]
    parts = recipe.get("mix")
    mixed = [part.get("corpus") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    corpora = [one for one in (*mixed, recipe.get("corpus")) if isinstance(one, dict) and one.get("source")]
    return ", ".join(dict.fromkeys(_name(one["source"]) for one in corpora))[:LONGEST]


def _name(source: Any) -> str:
    return ", ".join(map(str, source)) if isinstance(source, list) else str(source)


@lru_cache(maxsize=KEPT)
def _data_size(log: Path, _inode: int) -> str:
    """How much data there is, as the log's first line says it: "929,455 tokens"."""
    for line in head(log):
        if found := re.search(r" parameters.{0,300}?, on (.{1,120}?); [\d,]+ steps", line):
            return found[1]
    return ""
