"""Facts for a run's header: parameter count, training data, elapsed time, time left, tokens per second."""

from __future__ import annotations

import math
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk, folder_layout
from meristem.checkpoint.manifest import MODEL
from meristem.checkpoint.run_folder import RunFolder
from meristem.serving.studio.metrics_tail import MAX_CACHED_RUNS, cached_by_file, file_stamp, metrics_tail, read_head
from meristem.serving.studio.run_status import RunStatus, finished_record
from meristem.utils import untrusted_files

MAX_HEADER_BYTES = 16 << 20
"""Maximum size of a safetensors header."""
MAX_NAME_CHARS = 200
"""Maximum characters of the name of the training data."""


def run_header(run: RunFolder, recipe: dict[str, Any], status: RunStatus) -> dict[str, Any]:
    """The facts of the header; None where one is not known (yet)."""
    tail = metrics_tail(run.metrics_path)
    used = (finished_record(run) or {}).get("used")
    minutes = used.get("minutes") if isinstance(used, dict) else None
    return {
        "parameters": None if status.saved is None else count_parameters(run, status.saved),
        "data": training_data_name(recipe),
        "data_size": _data_size(run.log_path, file_stamp(run.log_path)[0]),
        "seconds": minutes * 60 if isinstance(minutes, int | float) else tail.seconds,
        "seconds_left": seconds_left(run, recipe, status),
        "tokens": tail.tokens,
        "tokens_per_second": tail.tokens_per_second,
    }


def seconds_left(run: RunFolder, recipe: dict[str, Any], status: RunStatus) -> float | None:
    """Estimated seconds until the budget is used up; None if the run is not training."""
    tail, train = metrics_tail(run.metrics_path), recipe.get("train")
    if status.state != "training":
        return None
    minutes = train.get("minutes") if isinstance(train, dict) else None
    if isinstance(minutes, int | float) and tail.seconds is not None:
        return max(0.0, minutes * 60 - tail.seconds)
    if status.total is None or tail.seconds_per_step is None:
        return None
    return max(0, status.total - status.step) * tail.seconds_per_step


def count_parameters(run: RunFolder, step: int) -> int | None:
    """The number of parameters of a checkpoint, from the shapes in its safetensors header."""
    return _count_parameters(run.checkpoints / folder_layout.folder_name(step) / MODEL)


@cached_by_file
def _count_parameters(path: Path) -> int | None:
    try:
        with disk.open_regular(path) as file:
            size = int.from_bytes(os.read(file, 8), "little")
            if size > MAX_HEADER_BYTES:
                return None
            tensors = untrusted_files.parse_strict_json(os.read(file, size))
        shapes = [entry["shape"] for name, entry in tensors.items() if name != "__metadata__"]
        return sum(math.prod(map(int, shape)) for shape in shapes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def training_data_name(recipe: dict[str, Any]) -> str:
    """The training data as named in the recipe: the training file of a task, or the text sources."""
    if isinstance(data := recipe.get("data"), dict) and data.get("train"):
        return str(data["train"])[:MAX_NAME_CHARS]
    mix = recipe.get("mix")
    entries = [entry for entry in mix if isinstance(entry, dict)] if isinstance(mix, list) else []
    corpora = [corpus for entry in (*entries, recipe) if isinstance(corpus := entry.get("corpus"), dict)]
    names = dict.fromkeys(_source_name(corpus["source"]) for corpus in corpora if corpus.get("source"))
    return ", ".join(names)[:MAX_NAME_CHARS]


def _source_name(source: Any) -> str:
    return ", ".join(map(str, source)) if isinstance(source, list) else str(source)


@lru_cache(maxsize=MAX_CACHED_RUNS)
def _data_size(log: Path, _inode: int) -> str:
    """The size of the training data from the first line of the log: "929,455 tokens"."""
    for line in read_head(log):
        if match := re.search(r" parameters.{0,300}?, on (.{1,120}?); [\d,]+ steps", line):
            return match[1]
    return ""
