"""Rows that only ever grow in number, kept in a file and read back through the page cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Rows read in one go where all of them are."""


class Growing:
    """An append-only file of equal rows; what lies beyond the given count is from a pass that was stopped, and goes."""

    def __init__(self, path: Path, dtype: str, width: int = 1, *, count: int = 0) -> None:
        self.path, self._width = path, width
        self._dtype = np.dtype(dtype)
        self._row = self._dtype.itemsize * width
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self._file.truncate(count * self._row)
        self._file.seek(0, os.SEEK_END)
        self._count = count
        self._mapped: NDArray[Any] = np.zeros((0, width), self._dtype)

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        rows = np.ascontiguousarray(rows, self._dtype).reshape(-1, self._width)
        left = memoryview(rows.tobytes())
        while left:  # an unbuffered write may take only a part
            left = left[self._file.write(left) :]
        self._count += len(rows)

    def rows(self, which: Any) -> NDArray[Any]:
        """Some rows, by an array of their numbers or a slice; a copy."""
        if len(self._mapped) < self._count:
            self._mapped = np.memmap(self.path, self._dtype, "r", shape=(self._count, self._width))
        return np.array(self._mapped[which])

    def digest(self, start: int) -> str:
        """SHA-256 over the rows from `start` to the end."""
        return digest_of(self.path, start * self._row, self._count * self._row)

    def flush(self) -> None:
        """Have everything on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._mapped = np.zeros((0, self._width), self._dtype)
        self._file.close()


def digest_of(path: Path, start: int = 0, stop: int | None = None) -> str:
    """SHA-256 of a file or of a range of its bytes."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        left = (path.stat().st_size if stop is None else stop) - start
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            made.update(chunk)
            left -= len(chunk)
    return made.hexdigest()
