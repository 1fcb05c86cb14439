"""Run folder: recipe, tokenizer, metrics, log and checkpoints of a run; its lock and its finished state."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk, file_lock
from meristem.config.errors import MeristemError, did_you_mean
from meristem.utils import untrusted_files
from meristem.utils.system_errors import remedy

BEST_RUN_FILE = "best"
"""In the folder of a grid, a file with the name of the best run."""
TRACKER_IDS_FILE = "trackers.json"
"""Ids of the run in wandb, mlflow and other trackers."""
RUN_FILES = (
    *("recipe.yaml", "tokenizer.json", "data.json", "finished.json", "metrics.jsonl", "log.txt"),
    *("README.md", "curves.png", "origin.json", "canaries.json", TRACKER_IDS_FILE, ".lock", "privacy.key"),
)
"""Files that a run reads or writes, and that may not be symbolic links."""
REPORT_FILES = ("report.html", "report.json", "exposure.html", "exposure.json")
"""Files that some runs write when they finish."""
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


class RunFolder:
    """A folder that training writes and everything else reads: `RunFolder.create` or `RunFolder.open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_path = path / "recipe.yaml"
        self.tokenizer_path = path / "tokenizer.json"
        self.metrics_path = path / "metrics.jsonl"
        self.log_path = path / "log.txt"
        self.finished_path = path / "finished.json"
        self.shards_path = path / "data.json"
        self.lock_path = path / ".lock"
        self.checkpoints = path / "checkpoints"

    @classmethod
    def create(cls, path: Path, recipe_text: str, tokenizer: Path | None) -> RunFolder:
        """Create a run; the recipe is written last, so that a partly created folder is not taken for a run."""
        run = cls(path)
        if run.recipe_path.exists():
            state = "is already a run: resume it, add --fresh" if run.exists() else "already has a recipe.yaml: move it"
            raise MeristemError(f"{path} {state}, or choose another --out")
        with _explain_os_errors(path, "created"):
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            if tokenizer is not None:
                disk.atomic_write(run.tokenizer_path, disk.read_chunks(tokenizer.resolve()))
            disk.atomic_write(run.recipe_path, [recipe_text.encode()])
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run, or the best run of a grid; raises with suggestions if there is none."""
        run = cls(path)
        if run.exists():
            run.refuse_links()
            return run
        if (best_run := _best_run(path)) is not None:
            return cls.open(best_run)
        if not path.exists():
            raise MeristemError(f"{path}: no such run{_suggest_runs(path)}")
        if enclosing_run := next((parent for parent in path.absolute().parents if cls(parent).exists()), None):
            raise MeristemError(f"{path} is part of a run, did you mean {enclosing_run}?")
        raise MeristemError(f"{path} is not a run: it has no recipe.yaml and checkpoints{_suggest_runs(path)}")

    def exists(self) -> bool:
        """Whether the folder is a run."""
        return self.recipe_path.is_file() and self.checkpoints.is_dir()

    def refuse_links(self) -> None:
        """Raise if a file of the run is a symbolic link, through which another file would be read or overwritten."""
        for name in RUN_FILES:
            if (self.path / name).is_symlink():
                raise MeristemError(
                    f"{self.path / name} is a symbolic link, which is not followed in a run: "
                    "replace it by the file itself, or delete it"
                )

    def refuse_non_files(self) -> None:
        """Raise before training if a folder has the name of a file that the run will write."""
        for name in (*RUN_FILES, *REPORT_FILES):
            path = self.path / name
            if path.exists() and not path.is_file():
                raise MeristemError(f"{path} is not a file, and the run writes a file of that name: move it elsewhere")

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the lock of the run, so that only one process trains it; a killed process releases it."""
        self.refuse_links()
        self.refuse_non_files()
        with ExitStack() as stack:
            with _explain_os_errors(self.path, "locked"):
                acquired = stack.enter_context(file_lock.hold_lock(self.lock_path, wait=False))
            if not acquired:
                raise MeristemError(
                    f"{self.path} is in use by {file_lock.lock_holder(self.lock_path)}, which is training there: "
                    "wait for it, stop it, or choose another --out"
                )
            yield

    def shard_keys(self) -> dict[str, str]:
        """Source → cache key of its shards; empty if none are recorded."""
        if not self.shards_path.is_file():
            return {}
        shard_keys = untrusted_files.read_json_object(self.shards_path)
        for key in shard_keys.values():
            if not isinstance(key, str) or not re.fullmatch("[0-9A-Za-z_@-]{1,80}", key):
                raise MeristemError(
                    f"{self.shards_path}: {key!r:.60} is not a valid key of shards (letters, digits, _, @ and -)"
                )
        return shard_keys

    @property
    def finish_record(self) -> dict[str, Any] | None:
        """Content of finished.json; None while the run is not finished."""
        try:
            record = untrusted_files.parse_json_line(untrusted_files.read_bytes(self.finished_path))
        except (MeristemError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def mark_finished(self, record: dict[str, Any]) -> None:
        """Mark the run as finished, with its final metrics."""
        with _explain_os_errors(self.path, "finished"):
            disk.atomic_write(self.finished_path, [untrusted_files.to_json(record, indent=1).encode()])

    def clear_finished(self) -> None:
        """Mark the run as not finished, after its budget has grown."""
        with _explain_os_errors(self.path, "reopened"):
            self.finished_path.unlink(missing_ok=True)

    def truncate_metrics(self, step: int) -> int:
        """Remove lines after `step` and incomplete lines from metrics.jsonl; returns their number."""
        if not self.metrics_path.exists():
            return 0
        with _explain_os_errors(self.path, "trimmed"), self.metrics_path.open("rb") as lines:
            removed = sum(not _is_line_kept(line, step) for line in lines)
            if removed:
                lines.seek(0)
                disk.atomic_write(self.metrics_path, (line for line in lines if _is_line_kept(line, step)))
        return removed


def move_aside(path: Path) -> Path:
    """Move a run to `<name>.old-1` or the next free number; nothing is deleted."""
    candidates = (path.with_name(f"{path.name}.old-{number}") for number in count(1))
    with RunFolder(path).hold_lock(), _explain_os_errors(path, "moved aside"):
        target = next(candidate for candidate in candidates if not candidate.exists())
        disk.rename(path, target)
    return target


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside a run's folder, or a full disk, into an error message with advice."""
    try:
        yield
    except OSError as error:
        filename = error.filename if isinstance(error.filename, str) else ""
        if error.errno not in DISK_FULL_ERRNOS and not Path(filename).is_relative_to(path):
            raise
        advice = "free some disk space" if error.errno in DISK_FULL_ERRNOS else "check the disk and the permissions"
        raise MeristemError(
            f"{path} could not be written: {error.strerror} ({filename or path}); the checkpoints are kept: "
            f"{advice}, and resume with the same command"
        ) from error


@contextmanager
def _explain_os_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError into an error message with advice."""
    try:
        yield
    except OSError as error:
        location = f" ({error.filename})" if error.filename else ""
        raise MeristemError(f"{path} could not be {action}: {error.strerror}{location}; {remedy(error)}") from error


def _is_line_kept(line: bytes, step: int) -> bool:
    """Whether a line of metrics is complete and not after `step`."""
    try:
        entry = untrusted_files.parse_json_line(line)
    except ValueError:
        return False
    if not line.endswith(b"\n") or not isinstance(entry, dict):
        return False
    line_step = entry.get("step", step)
    return isinstance(line_step, int) and line_step <= step


def _best_run(path: Path) -> Path | None:
    """The best run in the folder of a grid; None if it names none."""
    try:
        name = untrusted_files.read_text(path / BEST_RUN_FILE, 1 << 12).strip()
    except MeristemError:
        return None
    run_path = path / name
    is_inside = run_path.parent == path and run_path.name == name != ".."
    return run_path if is_inside and not run_path.is_symlink() and RunFolder(run_path).exists() else None


def _suggest_runs(path: Path) -> str:
    """Suggestion for a message: runs inside the path, or else beside it."""
    for folder in (path, path.parent):
        runs = sorted(entry.name for entry in folder.iterdir() if RunFolder(entry).exists()) if folder.is_dir() else []
        if runs:
            return did_you_mean(path.name, runs)
    return ""
