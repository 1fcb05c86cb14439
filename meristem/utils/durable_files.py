"""Files that are complete or absent: hashed while they are written under a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from meristem.utils.system_errors import name_file_in_errors

PARTIAL_SUFFIX = ".partial"
"""Ending of the temporary name; what a killed process left under it can be deleted."""


class PartialFile:
    """A file that gets its name when it is finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial_path = path.with_name(path.name + PARTIAL_SUFFIX)
        self._file = self._partial_path.open("wb")
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with name_file_in_errors(self.path):
            self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """Flush to disk (fsync), rename to the final name, and return the SHA-256."""
        with name_file_in_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        self._partial_path.replace(self.path)
        return self._digest.hexdigest()

    def discard(self) -> None:
        """Close and delete the temporary file; nothing happens after `finish`."""
        with suppress(OSError):  # flushing the buffer may fail on a full disk; its contents are not needed
            self._file.close()
        with suppress(OSError):
            self._partial_path.unlink()


def write_durably(path: Path, text: str) -> None:
    """Write a text file: readers see the old or the new content, also after a power failure."""
    file = PartialFile(path)
    try:
        file.write(text.encode())
        file.finish()
    except BaseException:
        file.discard()
        raise
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """fsync a folder, so that renames in it survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with name_file_in_errors(folder):
            os.fsync(handle)
    finally:
        os.close(handle)


def range_sha256(path: Path, start: int = 0, stop: int | None = None) -> str:
    """SHA-256 of a file or of a range of its bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        remaining = (path.stat().st_size if stop is None else stop) - start
        while remaining > 0 and (chunk := file.read(min(remaining, 1 << 20))):
            digest.update(chunk)
            remaining -= len(chunk)
    return digest.hexdigest()
