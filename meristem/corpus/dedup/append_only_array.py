"""An append-only array of rows in a file, read through the page cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.utils.durable_files import range_sha256

BLOCK_ROWS = 1 << 16
"""Rows read at once when all of them are read."""


class AppendOnlyArray:
    """An append-only file of fixed-size rows; rows beyond the given count, from an interrupted pass, are truncated."""

    def __init__(self, path: Path, dtype: str, width: int = 1, *, count: int = 0) -> None:
        self.path, self._width = path, width
        self._dtype = np.dtype(dtype)
        self._row_bytes = self._dtype.itemsize * width
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self._file.truncate(count * self._row_bytes)
        self._file.seek(0, os.SEEK_END)
        self._count = count
        self._mapped: NDArray[Any] = np.zeros((0, width), self._dtype)

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        rows = np.ascontiguousarray(rows, self._dtype).reshape(-1, self._width)
        remaining = memoryview(rows.tobytes())
        while remaining:  # an unbuffered write may take only a part
            remaining = remaining[self._file.write(remaining) :]
        self._count += len(rows)

    def rows(self, indices: Any) -> NDArray[Any]:
        """A copy of some rows, by an array of indices or a slice."""
        if len(self._mapped) < self._count:
            self._mapped = np.memmap(self.path, self._dtype, "r", shape=(self._count, self._width))
        return np.array(self._mapped[indices])

    def digest(self, start: int) -> str:
        """SHA-256 over the rows from `start` to the end."""
        return range_sha256(self.path, start * self._row_bytes, self._count * self._row_bytes)

    def flush(self) -> None:
        """Flush to disk (fsync)."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._mapped = np.zeros((0, self._width), self._dtype)
        self._file.close()
