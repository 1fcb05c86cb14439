"""The end of a run's metrics.jsonl: last loss, last evaluation, throughput, and a sparkline of the training loss."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from meristem.checkpoint import disk
from meristem.utils import untrusted_files

Value = TypeVar("Value")

TAIL_BYTES = 64 << 10
"""Bytes read from the end of a file."""
SPARKLINE_POINTS = 32
"""Points of a sparkline."""
SAMPLE_BYTES = 8 << 10
"""Bytes read for each point of a sparkline."""
RECENT_LINES = 20
"""Training lines over which the step time is averaged."""
MAX_METRICS = 60
"""Maximum number of metrics of an evaluation."""
MAX_CACHED_RUNS = 1024
"""Runs whose metrics are cached."""


@dataclass(frozen=True, kw_only=True)
class MetricsTail:
    """Values from the last lines; None where they are not recorded."""

    step: int = 0
    loss: float | None = None
    """The last training loss."""
    evaluation: dict[str, float] = field(default_factory=dict)
    """The metrics of the last evaluation on validation samples."""
    last_kind: str = ""
    """The kind of the last line."""
    stop_reason: str = ""
    """Why the objective stopped the training."""
    skipped_text: str = ""
    """The first text of the last step that was skipped."""
    seconds: float | None = None
    """Training time so far in seconds."""
    tokens: int | None = None
    tokens_per_second: float | None = None
    seconds_per_step: float | None = None
    """Mean over the last lines."""
    sparkline: tuple[float, ...] = ()
    """A coarse training loss curve."""


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Inode, size and modification time of a file, as a cache key; zeros if it does not exist."""
    try:
        status = path.lstat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


def cached_by_file(read: Callable[[Path], Value]) -> Callable[[Path], Value]:
    """A function that reads a file, with its results cached until the file changes."""

    @lru_cache(maxsize=MAX_CACHED_RUNS)
    def read_stamped(path: Path, _stamp: tuple[int, int, int]) -> Value:
        return read(path)

    @wraps(read)
    def read_cached(path: Path) -> Value:
        return read_stamped(path, file_stamp(path))

    return read_cached


@cached_by_file
def metrics_tail(path: Path) -> MetricsTail:
    """The tail of metrics.jsonl."""
    entries = parse_lines([line.encode() for line in read_tail(path) if line])
    lines = [entry for entry in entries if isinstance(entry, dict)]
    if not lines:
        return MetricsTail()
    train = [line for line in lines if line.get("kind") == "train"]
    texts = _last_of_kind(lines, "skipped").get("texts")
    last_train = train[-1] if train else {}
    return MetricsTail(
        step=max(to_count(line.get("step")) for line in lines),
        loss=next((float(line["loss"]) for line in reversed(train) if _has_loss(line)), None),
        evaluation=finite_numbers(_last_of_kind(lines, "evaluation")),
        last_kind=str(lines[-1].get("kind", "")),
        stop_reason=str(_last_of_kind(lines, "stopped").get("why", "")),
        skipped_text=str(texts[0]) if isinstance(texts, list) and texts else "",
        seconds=_positive(last_train.get("seconds")),
        tokens=to_count(last_train.get("tokens")) or None,
        tokens_per_second=_positive(last_train.get("tokens_per_second")),
        seconds_per_step=_seconds_per_step(train[-RECENT_LINES:]),
        sparkline=tuple(float(f"{value:.4g}") for value in sample_losses(path)),
    )


def _last_of_kind(lines: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next((line for line in reversed(lines) if line.get("kind") == kind), {})


def finite_numbers(values: Any) -> dict[str, float]:
    """The entries of a mapping that are finite numbers, a few of them; the step is none."""
    if not isinstance(values, dict):
        return {}
    numbers = {str(name): float(value) for name, value in values.items() if name != "step" and _is_finite(value)}
    return dict(list(numbers.items())[:MAX_METRICS])


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _positive(value: Any) -> float | None:
    return float(value) if _is_finite(value) and value > 0 else None


def _seconds_per_step(lines: Sequence[dict[str, Any]]) -> float | None:
    """Seconds of one step; a run that was resumed goes on counting where it stopped."""
    timings = [(to_count(line.get("step")), line["seconds"]) for line in lines if _is_finite(line.get("seconds"))]
    if not timings:
        return None
    (first_step, start_seconds), (last_step, last_seconds) = timings[0] if len(timings) > 1 else (0, 0.0), timings[-1]
    if last_step <= first_step or last_seconds <= start_seconds:
        return None
    return float(last_seconds - start_seconds) / (last_step - first_step)


def read_tail(path: Path, num_bytes: int = TAIL_BYTES) -> list[str]:
    """The last lines of a file; empty if it is not a regular file."""
    try:
        with disk.open_regular(path) as file:
            offset = max(0, os.fstat(file).st_size - num_bytes)
            lines = os.pread(file, num_bytes, offset).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[1:] if offset else lines


def read_head(path: Path, num_bytes: int = SAMPLE_BYTES) -> list[str]:
    """The first lines of a file; empty if it is not a regular file."""
    try:
        with disk.open_regular(path) as file:
            return os.pread(file, num_bytes, 0).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def sample_losses(path: Path) -> list[float]:
    """The training loss at positions spread over the file: enough for a sparkline, at any file size."""
    try:
        with disk.open_regular(path) as file:
            size = os.fstat(file).st_size
            if size <= SPARKLINE_POINTS * SAMPLE_BYTES // 4:
                lines = [line for line in os.pread(file, size, 0).split(b"\n") if line]
                losses = [value for entry in parse_lines(lines) if (value := _train_loss(entry)) is not None]
                return losses[:: -(-len(losses) // SPARKLINE_POINTS)] if losses else []
            offsets = [index * (size - SAMPLE_BYTES) // (SPARKLINE_POINTS - 1) for index in range(SPARKLINE_POINTS)]
            chunks = [os.pread(file, SAMPLE_BYTES, offset).split(b"\n")[1:] for offset in offsets]
    except OSError:
        return []
    losses_by_chunk = ((_train_loss(_parse_line(line)) for line in chunk) for chunk in chunks)
    first_losses = (next((loss for loss in losses if loss is not None), None) for losses in losses_by_chunk)
    return [loss for loss in first_losses if loss is not None]


def _train_loss(entry: Any) -> float | None:
    return float(entry["loss"]) if isinstance(entry, dict) and _has_loss(entry) else None


def _has_loss(line: dict[str, Any]) -> bool:
    return line.get("kind") == "train" and _is_finite(line.get("loss"))


def parse_lines(lines: Sequence[bytes]) -> list[Any]:
    """The values of JSON lines: parsed as one array, several times faster, or one by one if a line is broken."""
    try:
        entries: list[Any] = untrusted_files.parse_json_line(b"[" + b",".join(lines) + b"]")
        return entries
    except ValueError:
        return [entry for line in lines if (entry := _parse_line(line)) is not None]


def _parse_line(line: bytes) -> Any:
    try:
        return untrusted_files.parse_json_line(line)
    except ValueError:
        return None


def to_count(value: Any) -> int:
    """A non-negative integer; 0 for anything else."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0
