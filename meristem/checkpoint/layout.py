"""How checkpoints lie in their folder: `step-00001000/`, the pointers `latest` and `best`, and what a kill left."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from meristem.checkpoint import disk, lock

LOCK = ".lock"
WRITING, REPLACED, RETIRED = ".writing-", ".replaced-", ".retired-"


def folder_name(step: int) -> str:
    """`step-00001000`: names sort as steps do."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step a folder is named after, or None for any other name."""
    digits = re.fullmatch("step-([0-9]{8,})", name)
    return int(digits[1]) if digits and folder_name(int(digits[1])) == name else None


def steps(checkpoints: Path) -> list[int]:
    """The steps there are, newest first; hidden folders are never counted."""
    if not checkpoints.is_dir():
        return []
    found = (step_of(path.name) for path in checkpoints.iterdir() if path.is_dir())
    return sorted((step for step in found if step is not None), reverse=True)


def pointed(checkpoints: Path, pointer: str) -> int | None:
    """The step that `latest` or `best` names, if it names one."""
    try:
        with disk.regular(checkpoints / pointer) as file:
            return step_of(os.read(file, 64).decode("ascii", "replace").strip())
    except OSError:
        return None


def point(checkpoints: Path, pointer: str, step: int) -> None:
    """Let `latest` or `best` name a step."""
    disk.replace(checkpoints / pointer, [f"{folder_name(step)}\n".encode()])


def retire(checkpoints: Path, step: int) -> None:
    """Remove a checkpoint; it stops being one in a single act, before the first of its files goes."""
    name = folder_name(step)
    disk.rename(checkpoints / name, checkpoints / f"{RETIRED}{name}")
    disk.remove(checkpoints / f"{RETIRED}{name}")


def tidy(checkpoints: Path) -> None:
    """Finish what a killed save began; only for the one who holds the lock."""
    for path in sorted(checkpoints.glob(f"{REPLACED}*")):
        whole = checkpoints / path.name.removeprefix(REPLACED)
        if not whole.exists():  # killed between two renames: the old one is still the checkpoint
            disk.rename(path, whole)
    for prefix in (WRITING, REPLACED, RETIRED):
        for path in sorted(checkpoints.glob(f"{prefix}*")):
            disk.remove(path)


def tidy_if_idle(checkpoints: Path) -> None:
    """Tidy before reading, unless a save is under way; a folder that cannot be written to is read as it is."""
    if any(path.name.startswith((WRITING, REPLACED, RETIRED)) for path in checkpoints.iterdir()):
        with suppress(OSError), lock.hold(checkpoints / LOCK, wait=False) as idle:
            if idle:
                tidy(checkpoints)
