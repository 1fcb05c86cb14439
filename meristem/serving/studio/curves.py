"""The curves of a run: metrics.jsonl read on from where it was left, kept as columns, thinned for a screen."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint import disk
from meristem.serving.studio.metrics_tail import parsed

Axis = Literal["step", "tokens", "flops", "minutes"]
Floats = NDArray[np.float64]
DRAWN = ("train", "evaluation")
"""Lines that are points of a curve; the others are events."""
AXES = ("tokens", "seconds", "skipped")
"""Columns that count, and are no curves."""
CHUNK, LONGEST, LARGEST = 4 << 20, 1 << 20, 1 << 30
"""Bytes read at once, of a line, and of a file."""
NAMES, EVENTS = 200, 200
"""Columns and events that are kept."""
NAN = float("nan")


@dataclass
class Table:
    """The lines of one kind as columns; a column that begins late is filled up with what is no number."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    columns: dict[str, array[float]] = field(default_factory=dict)

    def add(self, step: float, values: dict[str, Any]) -> None:
        """One line."""
        rows, columns = len(self.steps), self.columns
        self.steps.append(step)
        for name, value in values.items():
            if type(value) is not float and type(value) is not int:
                continue
            column = columns.get(name)
            if column is None:
                if len(columns) == NAMES:
                    continue
                column = columns[name] = array("d")
            if len(column) < rows:
                column.extend([NAN] * (rows - len(column)))
            try:
                column.append(value)
            except OverflowError:
                column.append(NAN)

    def column(self, name: str) -> Floats:
        """As long as the table."""
        found = np.full(len(self.steps), NAN)
        if name in self.columns:
            found[: len(self.columns[name])] = self.columns[name]
        return found


class Curves:
    """One metrics.jsonl; several requests may ask at once."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._forget(0)

    def _forget(self, inode: int) -> None:
        self._inode, self._offset, self._rest = inode, 0, b""
        self.tables = {kind: Table() for kind in DRAWN}
        self.events: list[dict[str, Any]] = []

    @property
    def revision(self) -> str:
        """Changes with every line."""
        return f"{self._inode}-{self._offset}"

    @property
    def names(self) -> list[tuple[str, str]]:
        """Of all curves: the kind, and the name."""
        tables = list(self.tables.items())
        return [(kind, name) for kind, table in tables for name in list(table.columns) if name not in AXES]

    def refresh(self) -> None:
        """Read what is new; a file that was replaced or cut is read again from its start."""
        with self._lock:
            try:
                with disk.regular(self._path) as file:
                    facts = os.fstat(file)
                    if facts.st_ino != self._inode or facts.st_size < self._offset:
                        self._forget(facts.st_ino)
                    for lines in self._lines(file):
                        self._take(lines)
            except OSError:
                self._forget(0)

    def _lines(self, file: int) -> Iterator[list[bytes]]:
        """Whole lines, many at a time; the last one may be half written, and waits for its end."""
        while self._offset < LARGEST and (data := os.pread(file, CHUNK, self._offset)):
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield [line for line in lines if line]
            if len(self._rest) > LONGEST:
                self._rest = b""

    def _take(self, lines: list[bytes]) -> None:
        for entry in parsed(lines):
            if not isinstance(entry, dict) or type(step := entry.pop("step", None)) is not int or abs(step) > 1 << 53:
                continue
            kind = entry.pop("kind", "")
            if kind in DRAWN:
                self.tables[kind].add(step, entry)
            elif isinstance(kind, str):
                self.events = [*self.events[1 - EVENTS :], {"step": step, "kind": kind, **entry}]

    def series(
        self,
        axis: Axis,
        *,
        flops: float | None = None,
        points: int = 600,
        between: tuple[float, float] | None = None,
        only: str | None = None,
    ) -> list[dict[str, Any]]:
        """Every curve over an axis, or those of one name, in at most so many points each, perhaps a part alone.

        `flops` are those of one token: lines tell tokens.
        """
        with self._lock:
            out = []
            for kind, table in self.tables.items():
                along = self._along(table, axis, flops)
                for name in table.columns:
                    if name in AXES or (only is not None and name != only):
                        continue
                    x, y = _part(along, table.column(name), between)
                    x, y = thinned(x, y, points)
                    if len(x):
                        out.append({"name": name, "kind": kind, "x": rounded(x), "y": rounded(y)})
            return out

    def _along(self, table: Table, axis: Axis, flops: float | None) -> Floats:
        """Where the lines of a table stand on an axis; evaluations are placed between the lines that tell it."""
        steps = np.array(table.steps)
        if axis == "step":
            return steps
        train = self.tables["train"]
        known = train.column("seconds") / 60 if axis == "minutes" else train.column("tokens")
        if axis == "flops":
            known = known * (NAN if flops is None else flops)
        if table is train:
            return known
        if not len(known):
            return np.full(len(steps), NAN)
        return np.asarray(np.interp(steps, np.array(train.steps), known))


def _part(x: Floats, y: Floats, between: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """The points that are numbers, and one beyond each end of what is looked at, so that lines leave the picture."""
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    if between is None or not len(x):
        return x, y
    inside = np.flatnonzero((x >= between[0]) & (x <= between[1]))
    if not len(inside):
        return x[:0], y[:0]
    part = slice(max(0, inside[0] - 1), inside[-1] + 2)
    return x[part], y[part]


def thinned(x: Floats, y: Floats, most: int) -> tuple[Floats, Floats]:
    """At most so many points: the first, the last, and the lowest and highest of equal parts between them."""
    if len(x) <= most:
        return x, y
    parts = max(1, (most - 2) // 2)
    size = -(-len(y) // parts)
    padded = np.concatenate([y, np.full(parts * size - len(y), y[-1])]).reshape(parts, size)
    begins = np.arange(parts) * size
    chosen = np.concatenate([[0], begins + padded.argmin(1), begins + padded.argmax(1), [len(y) - 1]])
    chosen = np.unique(np.minimum(chosen, len(y) - 1))
    return x[chosen], y[chosen]


def rounded(values: Floats) -> list[float]:
    """Numbers to six digits: a screen has no more."""
    return [float(f"{value:.6g}") for value in values.tolist()]
