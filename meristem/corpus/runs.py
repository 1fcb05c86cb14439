"""Keys and whose they are, in sorted runs that double in size: in memory while they fit, on disk beyond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Ids = NDArray[np.uint32]

BLOCK = 1 << 18
"""Entries merged in one go on disk."""

ENTRY = 12
"""Bytes of a key and whose it is."""


@dataclass
class Run:
    """Keys in order, and for each whose it is."""

    keys: Keys
    ids: Ids
    files: tuple[Path, ...] = ()
    """Where it lies, if it is on disk."""

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, asked: Keys) -> tuple[NDArray[np.int64], Ids]:
        """Every entry with one of the keys asked for, which are in order: (which one it was, whose it is)."""
        first = np.searchsorted(self.keys, asked)
        hit = np.flatnonzero(self.keys[np.minimum(first, len(self.keys) - 1)] == asked)
        first = first[hit]
        counts = np.searchsorted(self.keys, asked[hit], side="right") - first
        at = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.repeat(hit, counts), np.asarray(self.ids[at])


class Runs:
    """All that was added, to be asked for by key."""

    def __init__(self, folder: Path, memory: int) -> None:
        self._folder, self._memory = folder, memory // 2  # two runs that are merged exist twice for a moment
        self._runs: list[Run] = []
        self._numbers = count()
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():  # runs are made again from what they were made from: an old one is a leftover
            path.unlink()

    def add(self, keys: Keys, ids: Ids) -> None:
        """Take in entries."""
        if not len(keys):
            return
        run = _sorted(keys, ids)
        while self._runs and len(self._runs[-1]) <= len(run):
            run = self._merged(self._runs.pop(), run)
        self._runs.append(run)
        for number, held in enumerate(self._runs):  # the largest come first
            if self._held() <= self._memory:
                break
            if not held.files:
                self._runs[number] = self._written([(held.keys, held.ids)])

    def find(self, keys: Keys) -> tuple[NDArray[np.int64], Ids]:
        """Every entry with one of these keys: (which of them it was, whose it is)."""
        order = np.argsort(keys)
        found = [run.find(keys[order]) for run in self._runs]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return order[np.concatenate([which for which, _ in found])], np.concatenate([ids for _, ids in found])

    @property
    def on_disk(self) -> int:
        """Runs that did not fit into memory."""
        return sum(bool(run.files) for run in self._runs)

    def _held(self) -> int:
        return sum(ENTRY * len(run) for run in self._runs if not run.files)

    def _merged(self, old: Run, new: Run) -> Run:
        if old.files or new.files:
            made = self._written(_merged_blocks(old, new))
            for path in (*old.files, *new.files):
                path.unlink()
            return made
        return _sorted(np.concatenate([old.keys, new.keys]), np.concatenate([old.ids, new.ids]))

    def _written(self, blocks: Iterator[tuple[Keys, Ids]] | list[tuple[Keys, Ids]]) -> Run:
        number = next(self._numbers)
        files = self._folder / f"{number:06d}.keys", self._folder / f"{number:06d}.ids"
        with files[0].open("wb") as keys, files[1].open("wb") as ids:
            for block in blocks:
                keys.write(block[0].tobytes())
                ids.write(block[1].tobytes())
        return Run(np.memmap(files[0], np.uint64, "r"), np.memmap(files[1], np.uint32, "r"), files)


def _sorted(keys: Keys, ids: Ids) -> Run:
    order = np.argsort(keys, kind="stable")
    return Run(keys[order], ids[order])


def _merged_blocks(old: Run, new: Run) -> Iterator[tuple[Keys, Ids]]:
    """Two runs as one, a bounded number of entries at a time."""
    starts = [0, 0]
    while starts != [len(old), len(new)]:
        views = [(run, start, run.keys[start : start + BLOCK]) for run, start in zip((old, new), starts, strict=True)]
        # nothing that is out of view is smaller than the last key in view before it
        behind = [keys[-1] for run, start, keys in views if start + len(keys) < len(run)]
        ends = [
            start + (int(np.searchsorted(keys, min(behind), side="right")) if behind else len(keys))
            for _, start, keys in views
        ]
        block = _sorted(
            np.concatenate([run.keys[start:end] for (run, start, _), end in zip(views, ends, strict=True)]),
            np.concatenate([run.ids[start:end] for (run, start, _), end in zip(views, ends, strict=True)]),
        )
        yield block.keys, block.ids
        starts = ends
