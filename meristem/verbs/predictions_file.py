"""The file of `predict --out`: every row with the columns it had, and its prediction in columns beside them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from meristem import bounded
from meristem.errors import RecipeError
from meristem.system_errors import naming_file

DELIMITERS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (*DELIMITERS, ".jsonl")
Record = dict[str, Any]


def record_of(row: Mapping[str, Any], prediction: Any, error: str = "") -> Record:
    """A row and its prediction: `predicted_label`, `predicted_score`, …, or `predicted` where it is a list."""
    if error:
        return {**row, "error": error}
    if isinstance(prediction, Mapping):
        return {**row, **{f"predicted_{name}": value for name, value in prediction.items()}}
    return {**row, "predicted": prediction}


class PredictionsFile:
    """Records written as they come: CSV or TSV with the columns of the first ones, or JSON lines."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in ENDINGS:
            raise RecipeError(f"--out {path}: expected a name that ends in {', '.join(ENDINGS)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("w", encoding="utf-8", newline="")
        self._table: csv.DictWriter[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with naming_file(self.path):
            self._file.close()

    def write(self, records: Sequence[Record]) -> None:
        """Some records more; the first call decides the columns of a table. A row without a prediction has it empty."""
        with naming_file(self.path):
            self._write(records)

    def _write(self, records: Sequence[Record]) -> None:
        if self.path.suffix == ".jsonl":
            self._file.writelines(bounded.to_json(one, default=str) + "\n" for one in records)
            return
        if self._table is None and records:
            names = dict.fromkeys(name for one in records for name in one if name != "error")
            delimiter = DELIMITERS[self.path.suffix]
            self._table = csv.DictWriter(self._file, list(names), extrasaction="ignore", delimiter=delimiter,
                                         lineterminator="\n")  # fmt: skip
            self._table.writeheader()
        if self._table is not None:
            self._table.writerows({name: _cell(value) for name, value in one.items()} for one in records)


def _cell(value: Any) -> Any:
    return bounded.to_json(value, default=str) if isinstance(value, list | tuple | Mapping) else value
