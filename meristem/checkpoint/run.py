"""A run is a folder: its recipe, what it measured, what it said, its checkpoints."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint import disk, lock
from meristem.errors import MeristemError, did_you_mean
from meristem.system_errors import remedy

BEST = "best"
"""In a folder of several runs, a file with the name of the best."""
OWN = ("recipe.yaml", "tokenizer.json", "data.json", "finished.json", "metrics.jsonl", "log.txt", "README.md",
       "curves.png", "origin.json", ".lock")
"""Files that a run reads or writes, and that may not be links."""
REPORTS = ("report.html", "report.json")
"""Files that some runs write when they end."""
FULL = (errno.ENOSPC, errno.EDQUOT)


class Run:
    """A folder that training writes and everything else reads: `Run.create` or `Run.open`."""

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
    def create(cls, path: Path, recipe_text: str, tokenizer: Path | None) -> Run:
        """Begin a run; the recipe is written last, so that no half-made folder looks like a run."""
        run = cls(path)
        if run.recipe_path.exists():
            what = "is a run already: go on with it, start --fresh" if run.exists() else "has a recipe.yaml of its own"
            raise MeristemError(f"{path} {what}, or choose another --out")
        with _telling(path, "created"):
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            if tokenizer is not None:
                disk.replace(run.tokenizer_path, disk.read(tokenizer.resolve()))
            disk.replace(run.recipe_path, [recipe_text.encode()])
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """A run that exists; a clear word where there is none."""
        run = cls(path)
        if run.exists():
            run.refuse_links()
            return run
        if (chosen := _best(path)) is not None:
            return cls.open(chosen)
        if not path.exists():
            raise MeristemError(f"{path}: there is no such run{_nearby(path)}")
        if whole := next((parent for parent in path.absolute().parents if cls(parent).exists()), None):
            raise MeristemError(f"{path} is a part of a run, did you mean {whole}?")
        raise MeristemError(f"{path} is no run: it has no recipe.yaml with checkpoints beside it{_nearby(path)}")

    def exists(self) -> bool:
        """Whether the folder is a run."""
        return self.recipe_path.is_file() and self.checkpoints.is_dir()

    def refuse_links(self) -> None:
        """A run holds its own files: through a link, somebody else's would be read, or written to while training."""
        for name in OWN:
            if (self.path / name).is_symlink():
                raise MeristemError(f"{self.path / name} is a link, and a run holds its own files: "
                                    "put the file itself in its place, or take the link away")

    def refuse_other_kinds(self) -> None:
        """A folder in the place of a file that training writes: said before hours are spent, not after."""
        for name in (*OWN, *REPORTS):
            path = self.path / name
            if path.exists() and not path.is_file():
                raise MeristemError(f"{path} is no file, and a run writes a file of that name: move it elsewhere")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else trains in this run meanwhile; a killed process leaves no lock behind."""
        self.refuse_links()
        self.refuse_other_kinds()
        with ExitStack() as stack:
            with _telling(self.path, "locked"):
                mine = stack.enter_context(lock.hold(self.lock_path, wait=False))
            if not mine:
                raise MeristemError(f"{self.path} is in use by {lock.holder(self.lock_path)}, which is training there: "
                                    "wait for it, stop it, or choose another --out")
            yield

    def shards(self) -> dict[str, str]:
        """Which shards each source of the run reads; nothing where it never said."""
        if not self.shards_path.is_file():
            return {}
        found = bounded.read_mapping(self.shards_path)
        for key in found.values():
            if not isinstance(key, str) or not re.fullmatch("[0-9A-Za-z_@-]{1,80}", key):
                raise MeristemError(f"{self.shards_path}: {key!r:.60} names no shards: a key is letters and digits")
        return found

    @property
    def finished(self) -> dict[str, Any] | None:
        """What was said when the budget was used up; None while there is more to do."""
        try:
            facts = bounded.row(bounded.content(self.finished_path))
        except (MeristemError, ValueError):
            return None
        return facts if isinstance(facts, dict) else None

    def finish(self, facts: dict[str, Any]) -> None:
        """Say that the budget is used up, with whatever there is to tell."""
        with _telling(self.path, "finished"):
            disk.replace(self.finished_path, [bounded.to_json(facts, indent=1).encode()])

    def reopen(self) -> None:
        """There is more to do after all: a budget has grown."""
        with _telling(self.path, "reopened"):
            self.finished_path.unlink(missing_ok=True)

    def trim_metrics(self, step: int) -> int:
        """Cut from metrics.jsonl what was measured after a step, and torn lines; the number of lines cut."""
        if not self.metrics_path.exists():
            return 0
        with _telling(self.path, "trimmed"), self.metrics_path.open("rb") as lines:
            cut = sum(not _stays(line, step) for line in lines)
            if cut:
                lines.seek(0)
                disk.replace(self.metrics_path, (line for line in lines if _stays(line, step)))
        return cut


def aside(path: Path) -> Path:
    """Move an old run to `<name>.old-1` or the next number that is free; nothing is deleted."""
    names = (path.with_name(f"{path.name}.old-{number}") for number in count(1))
    with Run(path).locked(), _telling(path, "moved aside"):
        free = next(name for name in names if not name.exists())
        disk.rename(path, free)
    return free


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn what the system refuses inside a run's folder, or a full disk, into a sentence for a person."""
    try:
        yield
    except OSError as error:
        place = error.filename if isinstance(error.filename, str) else ""
        if error.errno not in FULL and not Path(place).is_relative_to(path):
            raise
        advice = "make room on the disk" if error.errno in FULL else "check the disk, and that you may write there"
        raise MeristemError(
            f"{path} could not be written: {error.strerror} ({place or path}); the checkpoints are kept: "
            f"{advice}, and resume with the same command"
        ) from error


@contextmanager
def _telling(path: Path, done: str) -> Iterator[None]:
    """What the system refuses, said to a person."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise MeristemError(f"{path} could not be {done}: {error.strerror}{where}; {remedy(error)}") from error


def _stays(line: bytes, step: int) -> bool:
    """Whether a line of metrics is whole and not of a later step."""
    try:
        entry = bounded.row(line)
    except ValueError:
        return False
    if not line.endswith(b"\n") or not isinstance(entry, dict):
        return False
    measured = entry.get("step", step)
    return isinstance(measured, int) and measured <= step


def _best(path: Path) -> Path | None:
    """The run that a folder of several says is the best of them."""
    try:
        name = bounded.text(path / BEST, 1 << 12).strip()
    except MeristemError:
        return None
    found = path / name
    inside = found.parent == path and found.name == name != ".."
    return found if inside and not found.is_symlink() and Run(found).exists() else None


def _nearby(path: Path) -> str:
    """The end of a message: runs inside the path, or else beside it."""
    for folder in (path, path.parent):
        runs = sorted(entry.name for entry in folder.iterdir() if Run(entry).exists()) if folder.is_dir() else []
        if runs:
            return did_you_mean(path.name, runs)
    return ""
