"""Atomic folder writes: a folder appears complete or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meristem.checkpoint import disk
from meristem.config.errors import MeristemError


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `out` once it is complete; an existing folder is never written into."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MeristemError(f"{out} already exists: name a new folder")
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        if out.is_dir():
            out.rmdir()
        disk.rename(unfinished, out)
        disk.sync_folder(out.parent)
    except OSError as error:
        raise MeristemError(f"{out} could not be written: {error.strerror} ({error.filename})") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
