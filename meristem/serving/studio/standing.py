"""How a run stands, judged by what it left on the disk: training now, finished, stopped or failed, and why."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from meristem import bounded
from meristem.checkpoint import disk, layout
from meristem.checkpoint.run import Run

State = Literal["training", "finished", "stopped", "failed", "new"]
LOCKS = Path("/proc/locks")
GROWING = 15.0
"""Seconds since the last line within which a run counts as training, wherever its lock cannot be seen."""
TAIL = 64 << 10
"""Bytes at the end of a file that are looked at."""
SPARK = 32
"""Points of a small curve."""
SAMPLE = 8 << 10
"""Bytes that are read for each of them."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A run in a few numbers."""

    state: State
    why: str
    """Why it does not train: a word that the page turns into a sentence."""
    detail: str
    """What the run itself said of that."""
    step: int
    total: int | None
    saved: int | None
    """The step of the latest checkpoint."""
    loss: float | None
    changed: float
    """When it last said something, in seconds since 1970."""
    spark: list[float]
    """The loss over the run, roughly."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the end of metrics.jsonl says."""

    step: int = 0
    loss: float | None = None
    last: str = ""
    """The kind of the last line."""
    stopped: str = ""
    """Why the objective wanted no more steps."""
    bad: str = ""
    """The first text of the last step that was skipped."""
    spark: tuple[float, ...] = ()


Held = frozenset[tuple[int, int]]
"""Locks: the process that holds each, and the file's number."""


def standing(run: Run, recipe: dict[str, Any], held: Held | None) -> Standing:
    """Look at a run; `held` are the locks of others, where the system tells."""
    finished = run.finished
    measured = _measured(run.metrics_path, stamp(run.metrics_path))
    saved = layout.pointed(run.checkpoints, "latest")
    step = max(measured.step, saved or 0)
    changed = _changed(run)
    if finished is not None:
        state, why, detail = _ended(run, measured)
    elif _held(run.lock_path, held) or time.time() - changed < GROWING:
        state, why, detail = "training", "", ""
    else:
        state, why, detail = _broken_off(measured, step, saved)
    return Standing(
        state=state,
        why=why,
        detail=detail,
        step=step,
        total=_total(run, recipe, finished, saved),
        saved=saved,
        loss=measured.loss,
        changed=changed,
        spark=list(measured.spark),
    )


def stamp(path: Path) -> tuple[int, int, int]:
    """What changes when a file does."""
    try:
        facts = path.lstat()
    except OSError:
        return 0, 0, 0
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


@lru_cache(maxsize=1024)
def _measured(path: Path, _stamp: tuple[int, int, int]) -> Measured:
    lines = [entry for line in tail(path) if isinstance(entry := _row(line), dict)]
    if not lines:
        return Measured()
    texts = next((line.get("texts") for line in reversed(lines) if line.get("kind") == "skipped"), None)
    return Measured(
        step=max(_whole(line.get("step")) for line in lines),
        loss=next((float(line["loss"]) for line in reversed(lines) if _told(line)), None),
        last=str(lines[-1].get("kind", "")),
        stopped=next((str(line.get("why", "")) for line in reversed(lines) if line.get("kind") == "stopped"), ""),
        bad=str(texts[0]) if isinstance(texts, list) and texts else "",
        spark=tuple(spark(path)),
    )


def locks() -> Held | None:
    """The locks on whole files; None where the system does not tell."""
    try:
        lines = LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = (re.search(r"FLOCK +\S+ +\S+ +(\d+) \S+:(\d+) ", line) for line in lines)
    return frozenset((int(one[1]), int(one[2])) for one in found if one)


def _ended(run: Run, measured: Measured) -> tuple[State, str, str]:
    """Why a finished run took no more steps."""
    if measured.stopped:
        return "finished", "asked", measured.stopped
    early = next((line for line in reversed(_log(run)) if "stopped early at step" in line), "")
    return ("finished", "patience", early.partition(": ")[2]) if early else ("finished", "budget", "")


def _broken_off(measured: Measured, step: int, saved: int | None) -> tuple[State, str, str]:
    """Why a run that is not finished does not train: whoever stops one saves first."""
    if measured.last == "skipped":
        return "failed", "not_finite", measured.bad
    if not step:
        return ("new", "not_begun", "") if saved is None else ("finished", "given", "")
    if saved is not None and saved >= step:
        return "stopped", "saved", ""
    return "failed", "unsaved" if saved is not None else "nothing_saved", ""


def _held(path: Path, held: Held | None) -> bool:
    """Whether somebody holds a run's lock; asking for the lock itself might keep the run from it."""
    try:
        with disk.regular(path) as file:
            inode = os.fstat(file).st_ino
            number = os.read(file, 32).decode("ascii", "replace").strip()
    except OSError:
        return False
    if held is not None and any(inode == other or number == str(process) for process, other in held):
        return True
    if held is not None or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _total(run: Run, recipe: dict[str, Any], finished: dict[str, Any] | None, saved: int | None) -> int | None:
    """Steps that the run will have had: told by its checkpoint, its recipe or its log."""
    if finished is not None:
        return _whole(finished.get("step")) or None
    train = recipe.get("train")
    if isinstance(train, dict) and _whole(train.get("steps")):
        return _whole(train.get("steps"))
    if saved is not None and (total := _whole(state_of(run, saved).get("total"))):
        return total
    for line in reversed(_log(run)):
        if found := re.search(r"step \d{1,12}/(\d{1,12})\b", line):
            return int(found[1])
    return None


def state_of(run: Run, step: int) -> dict[str, Any]:
    """The counters of a checkpoint; nothing where they cannot be read."""
    try:
        with disk.regular(run.checkpoints / layout.folder_name(step) / "state.json") as file:
            found = bounded.strict(os.read(file, 1 << 20))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def tail(path: Path, size: int = TAIL) -> list[str]:
    """The last lines of a file; none of one that is no file."""
    try:
        with disk.regular(path) as file:
            begin = max(0, os.fstat(file).st_size - size)
            lines = os.pread(file, size, begin).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[1:] if begin else lines


def _log(run: Run) -> list[str]:
    return tail(run.log_path)


def spark(path: Path) -> list[float]:
    """The training loss at places spread over the file: enough for a small curve, whatever the file's size."""
    try:
        with disk.regular(path) as file:
            size = os.fstat(file).st_size
            if size <= SPARK * SAMPLE // 4:
                told = (_loss(line) for line in os.pread(file, size, 0).split(b"\n"))
                found = [value for value in told if value is not None]
                return found[:: -(-len(found) // SPARK)] if found else []
            places = [at * (size - SAMPLE) // (SPARK - 1) for at in range(SPARK)]
            parts = [os.pread(file, SAMPLE, place).split(b"\n")[1:] for place in places]
    except OSError:
        return []
    firsts = (next((value for line in part if (value := _loss(line)) is not None), None) for part in parts)
    return [value for value in firsts if value is not None]


def _loss(line: bytes) -> float | None:
    entry = _row(line)
    return float(entry["loss"]) if isinstance(entry, dict) and _told(entry) else None


def _told(line: dict[str, Any]) -> bool:
    """Whether it tells a training loss that is a number."""
    loss = line.get("loss")
    return line.get("kind") == "train" and isinstance(loss, int | float) and abs(loss) < 1e300


def _row(line: str | bytes) -> Any:
    try:
        return bounded.row(line)
    except ValueError:
        return None


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0


def _changed(run: Run) -> float:
    for path in (run.metrics_path, run.log_path, run.recipe_path):
        try:
            return path.lstat().st_mtime
        except OSError:
            continue
    return 0.0
