"""A tracker that writes one line of a CSV file per number."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

from meristem.training.tracker import Tracker


class CsvTracker(Tracker):
    """Appends to numbers.csv in the run's folder."""

    def __init__(self, folder: Path, *, last_step: int, log: Callable[[str], None]) -> None:
        self._file = (folder / "numbers.csv").open("a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)

    def add_scalars(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """One line per value."""
        self._writer.writerows((step, f"{kind}/{name}", value) for name, value in values.items())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
