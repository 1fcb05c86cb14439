"""The end of a run's metrics.jsonl: last loss, last evaluation, throughput, and a sparkline of the training loss."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint import disk

TAIL = 64 << 10
"""Bytes at the end of a file that are read."""
SPARK = 32
"""Points of a sparkline."""
SAMPLE = 8 << 10
"""Bytes that are read for each of them."""
RECENT = 20
"""Training lines over which the time of one step is averaged."""
NUMBERS = 60
"""Numbers of an evaluation that are kept."""
KEPT = 1024
"""Runs whose metrics stay in memory."""


@dataclass(frozen=True, kw_only=True)
class MetricsTail:
    """What the last lines say; None where they do not say it."""

    step: int = 0
    loss: float | None = None
    """The last training loss."""
    evaluation: dict[str, float] = field(default_factory=dict)
    """The numbers of the last evaluation on validation samples."""
    last: str = ""
    """The kind of the last line."""
    stop_reason: str = ""
    """Why the objective wanted no more steps."""
    skipped_text: str = ""
    """The first text of the last step that was skipped."""
    seconds: float | None = None
    """Training time so far."""
    tokens: int | None = None
    tokens_per_second: float | None = None
    seconds_per_step: float | None = None
    """The mean of the last lines."""
    spark: tuple[float, ...] = ()
    """The training loss over the run, roughly."""


def stamp(path: Path) -> tuple[int, int, int]:
    """Inode, size and modification time: what changes when a file does."""
    try:
        facts = path.lstat()
    except OSError:
        return 0, 0, 0
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def metrics_tail(path: Path) -> MetricsTail:
    """Read it, or take it from memory where the file has not changed."""
    return _read(path, stamp(path))


@lru_cache(maxsize=KEPT)
def _read(path: Path, _stamp: tuple[int, int, int]) -> MetricsTail:
    lines = [entry for entry in parsed([line.encode() for line in tail(path) if line]) if isinstance(entry, dict)]
    if not lines:
        return MetricsTail()
    train = [line for line in lines if line.get("kind") == "train"]
    texts = _last(lines, "skipped").get("texts")
    newest = train[-1] if train else {}
    return MetricsTail(
        step=max(whole(line.get("step")) for line in lines),
        loss=next((float(line["loss"]) for line in reversed(train) if _has_loss(line)), None),
        evaluation=finite_numbers(_last(lines, "evaluation")),
        last=str(lines[-1].get("kind", "")),
        stop_reason=str(_last(lines, "stopped").get("why", "")),
        skipped_text=str(texts[0]) if isinstance(texts, list) and texts else "",
        seconds=_positive(newest.get("seconds")),
        tokens=whole(newest.get("tokens")) or None,
        tokens_per_second=_positive(newest.get("tokens_per_second")),
        seconds_per_step=_pace(train[-RECENT:]),
        spark=tuple(float(f"{value:.4g}") for value in spark(path)),
    )


def _last(lines: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next((line for line in reversed(lines) if line.get("kind") == kind), {})


def finite_numbers(values: Any) -> dict[str, float]:
    """The entries of a mapping that are finite numbers, a few of them; the step is none."""
    if not isinstance(values, dict):
        return {}
    found = {str(name): float(one) for name, one in values.items() if name != "step" and _is_finite(one)}
    return dict(list(found.items())[:NUMBERS])


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _positive(value: Any) -> float | None:
    return float(value) if _is_finite(value) and value > 0 else None


def _pace(lines: Sequence[dict[str, Any]]) -> float | None:
    """Seconds of one step; a run that was resumed goes on counting where it stopped."""
    known = [(whole(line.get("step")), line["seconds"]) for line in lines if _is_finite(line.get("seconds"))]
    if not known:
        return None
    (first, begun), (last, now) = known[0] if len(known) > 1 else (0, 0.0), known[-1]
    return (now - begun) / (last - first) if last > first and now > begun else None


def tail(path: Path, size: int = TAIL) -> list[str]:
    """The last lines of a file; none of one that is no file."""
    try:
        with disk.regular(path) as file:
            begin = max(0, os.fstat(file).st_size - size)
            lines = os.pread(file, size, begin).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[1:] if begin else lines


def head(path: Path, size: int = SAMPLE) -> list[str]:
    """The first lines of a file; none of one that is no file."""
    try:
        with disk.regular(path) as file:
            return os.pread(file, size, 0).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def spark(path: Path) -> list[float]:
    """The training loss at places spread over the file: enough for a sparkline, whatever the file's size."""
    try:
        with disk.regular(path) as file:
            size = os.fstat(file).st_size
            if size <= SPARK * SAMPLE // 4:
                lines = [line for line in os.pread(file, size, 0).split(b"\n") if line]
                found = [value for entry in parsed(lines) if (value := _loss(entry)) is not None]
                return found[:: -(-len(found) // SPARK)] if found else []
            places = [at * (size - SAMPLE) // (SPARK - 1) for at in range(SPARK)]
            parts = [os.pread(file, SAMPLE, place).split(b"\n")[1:] for place in places]
    except OSError:
        return []
    firsts = (next((value for line in part if (value := _loss(_row(line))) is not None), None) for part in parts)
    return [value for value in firsts if value is not None]


def _loss(entry: Any) -> float | None:
    return float(entry["loss"]) if isinstance(entry, dict) and _has_loss(entry) else None


def _has_loss(line: dict[str, Any]) -> bool:
    return line.get("kind") == "train" and _is_finite(line.get("loss"))


def parsed(lines: Sequence[bytes]) -> list[Any]:
    """What JSON lines hold: all at once, which is several times faster, or one by one where one of them is broken."""
    try:
        found: list[Any] = bounded.row(b"[" + b",".join(lines) + b"]")
        return found
    except ValueError:
        return [entry for line in lines if (entry := _row(line)) is not None]


def _row(line: bytes) -> Any:
    try:
        return bounded.row(line)
    except ValueError:
        return None


def whole(value: Any) -> int:
    """A count; 0 for whatever is none."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0
