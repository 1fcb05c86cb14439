"""Sorted runs of (key, id) entries that double in size (an LSM tree): in memory while they fit, then on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Ids = NDArray[np.uint32]

MERGE_ENTRIES = 1 << 18
"""Entries merged at once on disk."""

ENTRY_BYTES = 12
"""Bytes per entry: a key and an id."""


@dataclass
class SortedRun:
    """Sorted keys, and the id of each."""

    keys: Keys
    ids: Ids
    files: tuple[Path, ...] = ()
    """Its files, if it is on disk."""

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, queries: Keys) -> tuple[NDArray[np.int64], Ids]:
        """All entries with one of the queried keys, which must be sorted: (index of the query, id)."""
        first = np.searchsorted(self.keys, queries)
        hit = np.flatnonzero(self.keys[np.minimum(first, len(self.keys) - 1)] == queries)
        first = first[hit]
        counts = np.searchsorted(self.keys, queries[hit], side="right") - first
        positions = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.repeat(hit, counts), np.asarray(self.ids[positions])


class SortedRuns:
    """A multimap from keys to ids."""

    def __init__(self, folder: Path, memory: int) -> None:
        self._folder, self._memory = folder, memory // 2  # merging needs both the old and the new run
        self._runs: list[SortedRun] = []
        self._numbers = count()
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():  # runs are rebuilt from the signatures: delete old ones
            path.unlink()

    def add(self, keys: Keys, ids: Ids) -> None:
        """Add entries."""
        if not len(keys):
            return
        run = _sort_run(keys, ids)
        while self._runs and len(self._runs[-1]) <= len(run):
            run = self._merge(self._runs.pop(), run)
        self._runs.append(run)
        for number, stored_run in enumerate(self._runs):  # the largest come first
            if self._memory_used() <= self._memory:
                break
            if not stored_run.files:
                self._runs[number] = self._write_run([(stored_run.keys, stored_run.ids)])

    def find(self, keys: Keys) -> tuple[NDArray[np.int64], Ids]:
        """All entries with one of these keys: (index of the key, id)."""
        order = np.argsort(keys)
        matches = [run.find(keys[order]) for run in self._runs]
        if not matches:
            return np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return order[np.concatenate([which for which, _ in matches])], np.concatenate([ids for _, ids in matches])

    @property
    def on_disk(self) -> int:
        """Number of runs on disk."""
        return sum(bool(run.files) for run in self._runs)

    def _memory_used(self) -> int:
        return sum(ENTRY_BYTES * len(run) for run in self._runs if not run.files)

    def _merge(self, old: SortedRun, new: SortedRun) -> SortedRun:
        if old.files or new.files:
            merged = self._write_run(_merge_blocks(old, new))
            for path in (*old.files, *new.files):
                path.unlink()
            return merged
        return _sort_run(np.concatenate([old.keys, new.keys]), np.concatenate([old.ids, new.ids]))

    def _write_run(self, blocks: Iterator[tuple[Keys, Ids]] | list[tuple[Keys, Ids]]) -> SortedRun:
        number = next(self._numbers)
        files = self._folder / f"{number:06d}.keys", self._folder / f"{number:06d}.ids"
        with files[0].open("wb") as keys, files[1].open("wb") as ids:
            for block in blocks:
                keys.write(block[0].tobytes())
                ids.write(block[1].tobytes())
        return SortedRun(np.memmap(files[0], np.uint64, "r"), np.memmap(files[1], np.uint32, "r"), files)


def _sort_run(keys: Keys, ids: Ids) -> SortedRun:
    order = np.argsort(keys, kind="stable")
    return SortedRun(keys[order], ids[order])


def _merge_blocks(old: SortedRun, new: SortedRun) -> Iterator[tuple[Keys, Ids]]:
    """Merge two runs, a bounded number of entries at a time."""
    starts = [0, 0]
    while starts != [len(old), len(new)]:
        views = [
            (run, start, run.keys[start : start + MERGE_ENTRIES]) for run, start in zip((old, new), starts, strict=True)
        ]
        # no key beyond a view is smaller than the last key of that view
        unseen_bounds = [keys[-1] for run, start, keys in views if start + len(keys) < len(run)]
        ends = [
            start + (int(np.searchsorted(keys, min(unseen_bounds), side="right")) if unseen_bounds else len(keys))
            for _, start, keys in views
        ]
        block = _sort_run(
            np.concatenate([run.keys[start:end] for (run, start, _), end in zip(views, ends, strict=True)]),
            np.concatenate([run.ids[start:end] for (run, start, _), end in zip(views, ends, strict=True)]),
        )
        yield block.keys, block.ids
        starts = ends
