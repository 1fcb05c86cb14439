"""A folder that appears whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meristem.errors import MeristemError


@contextmanager
def whole(out: Path) -> Iterator[Path]:
    """A folder to write into, which takes its name when everything is in it; an existing one is never written into."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MeristemError(f"{out} exists already: name a folder that does not")
    beside = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        yield beside
        if out.is_dir():
            out.rmdir()
        beside.rename(out)
    except OSError as error:
        raise MeristemError(f"{out} could not be written: {error.strerror} ({error.filename})") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
