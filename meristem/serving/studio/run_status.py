"""The status of a run from its files and locks: training, finished, stopped, failed or new, and why."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from meristem.checkpoint import disk, folder_layout
from meristem.checkpoint.run_folder import RunFolder
from meristem.serving.studio.metrics_tail import (
    MetricsTail,
    cached_by_file,
    metrics_tail,
    read_tail,
    to_count,
)
from meristem.utils import untrusted_files

RunState = Literal["training", "finished", "stopped", "failed", "new"]
LOCKS = Path("/proc/locks")
ACTIVE_SECONDS = 15.0
"""Seconds since its last log line within which a run counts as training if its lock cannot be seen."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """State, progress and loss of a run."""

    state: RunState
    why: str
    """Why it is not training: a code that the page translates."""
    detail: str
    """The run's own message about it."""
    step: int
    total: int | None
    saved: int | None
    """The step of the latest checkpoint."""
    loss: float | None
    changed: float
    """Time of the last change of its files, in seconds since 1970."""
    spark: list[float]
    """A coarse training loss curve."""


FileLocks = frozenset[tuple[int, int]]
"""(process id, inode) of each lock."""


def run_status(run: RunFolder, recipe: dict[str, Any], file_locks: FileLocks | None) -> RunStatus:
    """The status of a run; `file_locks` are the locks on this machine, None if the system does not list them."""
    finished = finished_record(run)
    metrics = metrics_tail(run.metrics_path)
    saved_step = folder_layout.read_pointer(run.checkpoints, "latest")
    step = max(metrics.step, saved_step or 0)
    changed = _modified_time(run)
    if finished is not None:
        state, why, detail = _finish_reason(run, metrics)
    elif _is_locked(run.lock_path, file_locks) or time.time() - changed < ACTIVE_SECONDS:
        state, why, detail = "training", "", ""
    else:
        state, why, detail = _stop_reason(metrics, step, saved_step)
    return RunStatus(
        state=state,
        why=why,
        detail=detail,
        step=step,
        total=_total_steps(run, recipe, finished, saved_step),
        saved=saved_step,
        loss=metrics.loss,
        changed=changed,
        spark=list(metrics.sparkline),
    )


def read_file_locks() -> FileLocks | None:
    """The flock locks on this machine; None if the system does not list them."""
    try:
        lines = LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    matches = (re.search(r"FLOCK +\S+ +\S+ +(\d+) \S+:(\d+) ", line) for line in lines)
    return frozenset((int(match[1]), int(match[2])) for match in matches if match)


def _finish_reason(run: RunFolder, metrics: MetricsTail) -> tuple[RunState, str, str]:
    """State, reason and detail of a finished run."""
    if metrics.stop_reason:
        return "finished", "asked", metrics.stop_reason
    stop_reason = _read_log_tail(run.log_path).stop_reason
    return ("finished", "patience", stop_reason) if stop_reason else ("finished", "budget", "")


def _stop_reason(metrics: MetricsTail, step: int, saved: int | None) -> tuple[RunState, str, str]:
    """State, reason and detail of an unfinished run that is not training; a run that is stopped saves first."""
    if metrics.last_kind == "skipped":
        return "failed", "not_finite", metrics.skipped_text
    if not step:
        return ("new", "not_begun", "") if saved is None else ("finished", "given", "")
    if saved is not None and saved >= step:
        return "stopped", "saved", ""
    return "failed", "unsaved" if saved is not None else "nothing_saved", ""


def _is_locked(path: Path, file_locks: FileLocks | None) -> bool:
    """Whether a process holds the run's lock; does not try to take the lock, which could block the run."""
    try:
        with disk.open_regular(path) as file:
            inode = os.fstat(file).st_ino
            process_text = os.read(file, 32).decode("ascii", "replace").strip()
    except OSError:
        return False
    if file_locks is not None:
        return any(inode == locked or process_text == str(process) for process, locked in file_locks)
    if not process_text.isdigit():
        return False
    try:
        os.kill(int(process_text), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _total_steps(
    run: RunFolder, recipe: dict[str, Any], finished: dict[str, Any] | None, saved: int | None
) -> int | None:
    """Total number of steps, from the finish record, recipe, checkpoint or log; None if unknown."""
    if finished is not None:
        return to_count(finished.get("step")) or None
    train = recipe.get("train")
    if isinstance(train, dict) and to_count(train.get("steps")):
        return to_count(train.get("steps"))
    if saved is not None and (total := to_count(checkpoint_state(run, saved).get("total"))):
        return total
    return _read_log_tail(run.log_path).total_steps


def checkpoint_state(run: RunFolder, step: int) -> dict[str, Any]:
    """The content of a checkpoint's state.json; empty if it cannot be read."""
    return _read_state(run.checkpoints / folder_layout.folder_name(step) / "state.json")


@cached_by_file
def _read_state(path: Path) -> dict[str, Any]:
    try:
        with disk.open_regular(path) as file:
            state = untrusted_files.parse_strict_json(os.read(file, 1 << 20))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


@dataclass(frozen=True)
class _LogTail:
    """What the last lines of log.txt say about the end of a run."""

    stop_reason: str
    """Why it stopped early; empty if it did not."""
    total_steps: int | None
    """The total number of steps in its last progress line."""


@cached_by_file
def _read_log_tail(path: Path) -> _LogTail:
    lines = read_tail(path)
    early_line = next((line for line in reversed(lines) if "stopped early at step" in line), "")
    matches = (re.search(r"step \d{1,12}/(\d{1,12})\b", line) for line in reversed(lines))
    return _LogTail(early_line.partition(": ")[2], next((int(match[1]) for match in matches if match), None))


def finished_record(run: RunFolder) -> dict[str, Any] | None:
    """`run.finish_record`, cached until the file changes."""
    return _read_finished_record(run.finished_path)


@cached_by_file
def _read_finished_record(path: Path) -> dict[str, Any] | None:
    return RunFolder(path.parent).finish_record


def _modified_time(run: RunFolder) -> float:
    for path in (run.metrics_path, run.log_path, run.recipe_path):
        try:
            return path.lstat().st_mtime
        except OSError:
            continue
    return 0.0
