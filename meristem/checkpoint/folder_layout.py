"""Layout of the checkpoints folder: `step-00001000/`, pointers `latest` and `best`, and cleanup after a kill."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from meristem.checkpoint import disk, file_lock

LOCK_NAME = ".lock"
WRITING_PREFIX, REPLACED_PREFIX, RETIRED_PREFIX = ".writing-", ".replaced-", ".retired-"


def folder_name(step: int) -> str:
    """Folder name of a step, such as `step-00001000`; names sort like steps."""
    return f"step-{step:08d}"


def parse_step(name: str) -> int | None:
    """The step in a folder name; None for any other name."""
    match = re.fullmatch("step-([0-9]{8,})", name)
    return int(match[1]) if match and folder_name(int(match[1])) == name else None


def list_steps(checkpoints: Path) -> list[int]:
    """Steps of the saved checkpoints, newest first; temporary (hidden) folders are ignored."""
    if not checkpoints.is_dir():
        return []
    step_numbers = (parse_step(path.name) for path in checkpoints.iterdir() if path.is_dir())
    return sorted((step for step in step_numbers if step is not None), reverse=True)


def read_pointer(checkpoints: Path, pointer: str) -> int | None:
    """The step that `latest` or `best` points to; None if there is none."""
    try:
        with disk.open_regular(checkpoints / pointer) as fd:
            return parse_step(os.read(fd, 64).decode("ascii", "replace").strip())
    except OSError:
        return None


def write_pointer(checkpoints: Path, pointer: str, step: int) -> None:
    """Point `latest` or `best` to a step."""
    disk.atomic_write(checkpoints / pointer, [f"{folder_name(step)}\n".encode()])


def remove_checkpoint(checkpoints: Path, step: int) -> None:
    """Delete a checkpoint; it is renamed first, so that a partly deleted one is never read."""
    name = folder_name(step)
    disk.rename(checkpoints / name, checkpoints / f"{RETIRED_PREFIX}{name}")
    disk.remove_tree(checkpoints / f"{RETIRED_PREFIX}{name}")


def clean_up(checkpoints: Path) -> None:
    """Finish or undo a save that was killed; the caller must hold the lock."""
    for path in sorted(checkpoints.glob(f"{REPLACED_PREFIX}*")):
        target = checkpoints / path.name.removeprefix(REPLACED_PREFIX)
        if not target.exists():  # killed between two renames: the old one is still valid
            disk.rename(path, target)
    for prefix in (WRITING_PREFIX, REPLACED_PREFIX, RETIRED_PREFIX):
        for path in sorted(checkpoints.glob(f"{prefix}*")):
            disk.remove_tree(path)


def clean_up_if_idle(checkpoints: Path) -> None:
    """Clean up before reading, unless a save is in progress or the folder is not writable."""
    if any(path.name.startswith((WRITING_PREFIX, REPLACED_PREFIX, RETIRED_PREFIX)) for path in checkpoints.iterdir()):
        with suppress(OSError), file_lock.hold_lock(checkpoints / LOCK_NAME, wait=False) as acquired:
            if acquired:
                clean_up(checkpoints)
