"""Training curves of a run: incremental reading of metrics.jsonl into columns, downsampled for plotting."""

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
from meristem.serving.studio.metrics_tail import parse_lines

Axis = Literal["step", "tokens", "flops", "minutes"]
Floats = NDArray[np.float64]
CURVE_KINDS = ("train", "evaluation")
"""Kinds of lines that are points of a curve; others are events."""
AXIS_COLUMNS = ("tokens", "seconds", "skipped")
"""Columns that are used for axes, not as curves."""
CHUNK_BYTES, MAX_LINE_BYTES, MAX_FILE_BYTES = 4 << 20, 1 << 20, 1 << 30
"""Bytes per read, and maximum bytes of a line and of a file."""
MAX_COLUMNS, MAX_EVENTS = 200, 200
"""Maximum number of columns and events."""
NAN = float("nan")


@dataclass
class MetricsTable:
    """The lines of one kind as columns; missing values are NaN."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    columns: dict[str, array[float]] = field(default_factory=dict)

    def add_line(self, step: float, values: dict[str, Any]) -> None:
        """Append one line."""
        num_rows, columns = len(self.steps), self.columns
        self.steps.append(step)
        for name, value in values.items():
            if type(value) is not float and type(value) is not int:
                continue
            column = columns.get(name)
            if column is None:
                if len(columns) == MAX_COLUMNS:
                    continue
                column = columns[name] = array("d")
            if len(column) < num_rows:
                column.extend([NAN] * (num_rows - len(column)))
            try:
                column.append(value)
            except OverflowError:
                column.append(NAN)

    def column(self, name: str) -> Floats:
        """A column, padded with NaN to the length of the table."""
        values = np.full(len(self.steps), NAN)
        if name in self.columns:
            values[: len(self.columns[name])] = self.columns[name]
        return values


class RunCurves:
    """The curves of one metrics.jsonl; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._reset(0)

    def _reset(self, inode: int) -> None:
        self._inode, self._offset, self._partial_line = inode, 0, b""
        self.tables = {kind: MetricsTable() for kind in CURVE_KINDS}
        self.events: list[dict[str, Any]] = []

    @property
    def revision(self) -> str:
        """A string that changes with every line."""
        return f"{self._inode}-{self._offset}"

    @property
    def names(self) -> list[tuple[str, str]]:
        """(kind, name) of all curves."""
        tables = list(self.tables.items())
        return [(kind, name) for kind, table in tables for name in list(table.columns) if name not in AXIS_COLUMNS]

    def refresh(self) -> None:
        """Read new lines; a file that was replaced or truncated is read again from the start."""
        with self._lock:
            try:
                with disk.open_regular(self._path) as file:
                    status = os.fstat(file)
                    if status.st_ino != self._inode or status.st_size < self._offset:
                        self._reset(status.st_ino)
                    for lines in self._read_lines(file):
                        self._add_lines(lines)
            except OSError:
                self._reset(0)

    def _read_lines(self, file: int) -> Iterator[list[bytes]]:
        """Complete lines, in chunks; a partial last line is kept for the next read."""
        while self._offset < MAX_FILE_BYTES and (data := os.pread(file, CHUNK_BYTES, self._offset)):
            self._offset += len(data)
            *lines, self._partial_line = (self._partial_line + data).split(b"\n")
            yield [line for line in lines if line]
            if len(self._partial_line) > MAX_LINE_BYTES:
                self._partial_line = b""

    def _add_lines(self, lines: list[bytes]) -> None:
        for entry in parse_lines(lines):
            if not isinstance(entry, dict) or type(step := entry.pop("step", None)) is not int or abs(step) > 1 << 53:
                continue
            kind = entry.pop("kind", "")
            if kind in CURVE_KINDS:
                self.tables[kind].add_line(step, entry)
            elif isinstance(kind, str):
                self.events = [*self.events[1 - MAX_EVENTS :], {"step": step, "kind": kind, **entry}]

    def series(
        self,
        axis: Axis,
        *,
        flops_per_token: float | None = None,
        points: int = 600,
        x_range: tuple[float, float] | None = None,
        only_name: str | None = None,
    ) -> list[dict[str, Any]]:
        """Every curve (or those named `only_name`) over an axis, with at most `points` points within `x_range`.

        `flops_per_token` converts the logged tokens for the FLOPs axis.
        """
        with self._lock:
            curves = []
            for kind, table in self.tables.items():
                axis_values = self._axis_values(table, axis, flops_per_token)
                for name in table.columns:
                    if name in AXIS_COLUMNS or (only_name is not None and name != only_name):
                        continue
                    x, y = _clip_range(axis_values, table.column(name), x_range)
                    x, y = downsample(x, y, points)
                    if len(x):
                        curves.append({"name": name, "kind": kind, "x": round_values(x), "y": round_values(y)})
            return curves

    def _axis_values(self, table: MetricsTable, axis: Axis, flops_per_token: float | None) -> Floats:
        """The x values of the lines of a table; those of evaluations are interpolated between training lines."""
        steps = np.array(table.steps)
        if axis == "step":
            return steps
        train = self.tables["train"]
        train_values = train.column("seconds") / 60 if axis == "minutes" else train.column("tokens")
        if axis == "flops":
            train_values = train_values * (NAN if flops_per_token is None else flops_per_token)
        if table is train:
            return train_values
        if not len(train_values):
            return np.full(len(steps), NAN)
        return np.asarray(np.interp(steps, np.array(train.steps), train_values))


def _clip_range(x: Floats, y: Floats, x_range: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """The finite points within a range, and one beyond each end, so that lines reach the border of the plot."""
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if x_range is None or not len(x):
        return x, y
    inside = np.flatnonzero((x >= x_range[0]) & (x <= x_range[1]))
    if not len(inside):
        return x[:0], y[:0]
    window = slice(max(0, inside[0] - 1), inside[-1] + 2)
    return x[window], y[window]


def downsample(x: Floats, y: Floats, max_points: int) -> tuple[Floats, Floats]:
    """At most `max_points` points: the first, the last, and the minimum and maximum of equal parts."""
    if len(x) <= max_points:
        return x, y
    num_parts = max(1, (max_points - 2) // 2)
    part_size = -(-len(y) // num_parts)
    padded = np.concatenate([y, np.full(num_parts * part_size - len(y), y[-1])]).reshape(num_parts, part_size)
    part_starts = np.arange(num_parts) * part_size
    indices = np.concatenate([[0], part_starts + padded.argmin(1), part_starts + padded.argmax(1), [len(y) - 1]])
    indices = np.unique(np.minimum(indices, len(y) - 1))
    return x[indices], y[indices]


def round_values(values: Floats) -> list[float]:
    """Values rounded to six significant digits, enough for a plot."""
    return [float(f"{value:.6g}") for value in values.tolist()]
