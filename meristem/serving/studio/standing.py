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
from meristem.serving.studio.metrics_tail import KEPT, MetricsTail, metrics_tail, stamp, tail, whole

State = Literal["training", "finished", "stopped", "failed", "new"]
LOCKS = Path("/proc/locks")
GROWING = 15.0
"""Seconds since the last line within which a run counts as training, wherever its lock cannot be seen."""


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


Held = frozenset[tuple[int, int]]
"""Locks: the process that holds each, and the file's number."""


def standing(run: Run, recipe: dict[str, Any], held: Held | None) -> Standing:
    """Look at a run; `held` are the locks of others, where the system tells."""
    finished = finished_of(run)
    measured = metrics_tail(run.metrics_path)
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


def locks() -> Held | None:
    """The locks on whole files; None where the system does not tell."""
    try:
        lines = LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = (re.search(r"FLOCK +\S+ +\S+ +(\d+) \S+:(\d+) ", line) for line in lines)
    return frozenset((int(one[1]), int(one[2])) for one in found if one)


def _ended(run: Run, measured: MetricsTail) -> tuple[State, str, str]:
    """Why a finished run took no more steps."""
    if measured.stop_reason:
        return "finished", "asked", measured.stop_reason
    early = _log(run).early
    return ("finished", "patience", early) if early else ("finished", "budget", "")


def _broken_off(measured: MetricsTail, step: int, saved: int | None) -> tuple[State, str, str]:
    """Why a run that is not finished does not train: whoever stops one saves first."""
    if measured.last == "skipped":
        return "failed", "not_finite", measured.skipped_text
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
        return whole(finished.get("step")) or None
    train = recipe.get("train")
    if isinstance(train, dict) and whole(train.get("steps")):
        return whole(train.get("steps"))
    if saved is not None and (total := whole(state_of(run, saved).get("total"))):
        return total
    return _log(run).total


def state_of(run: Run, step: int) -> dict[str, Any]:
    """The counters of a checkpoint; nothing where they cannot be read."""
    path = run.checkpoints / layout.folder_name(step) / "state.json"
    return _state(path, stamp(path))


@lru_cache(maxsize=KEPT)
def _state(path: Path, _stamp: tuple[int, int, int]) -> dict[str, Any]:
    try:
        with disk.regular(path) as file:
            found = bounded.strict(os.read(file, 1 << 20))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class _LogTail:
    """What the end of log.txt says of a run's end."""

    early: str
    """Why it stopped early."""
    total: int | None
    """The number of steps that its last line of progress names."""


@lru_cache(maxsize=KEPT)
def _log_tail(path: Path, _stamp: tuple[int, int, int]) -> _LogTail:
    lines = tail(path)
    early = next((line for line in reversed(lines) if "stopped early at step" in line), "")
    steps = (re.search(r"step \d{1,12}/(\d{1,12})\b", line) for line in reversed(lines))
    return _LogTail(early.partition(": ")[2], next((int(found[1]) for found in steps if found), None))


def _log(run: Run) -> _LogTail:
    return _log_tail(run.log_path, stamp(run.log_path))


def finished_of(run: Run) -> dict[str, Any] | None:
    """`run.finished`, read again only when the file has changed."""
    found = stamp(run.finished_path)
    return _finished_at(run.path, found) if any(found) else None


@lru_cache(maxsize=KEPT)
def _finished_at(path: Path, _stamp: tuple[int, int, int]) -> dict[str, Any] | None:
    return Run(path).finished


def _changed(run: Run) -> float:
    for path in (run.metrics_path, run.log_path, run.recipe_path):
        try:
            return path.lstat().st_mtime
        except OSError:
            continue
    return 0.0
