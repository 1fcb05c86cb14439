"""The output file of `predict --out` (CSV, TSV or JSON lines): the input columns and the predictions."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from meristem.config.errors import RecipeError
from meristem.utils import untrusted_files
from meristem.utils.system_errors import name_file_in_errors

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*DELIMITERS, ".jsonl")
Record = dict[str, Any]


def prediction_record(row: Mapping[str, Any], prediction: Any, error: str = "") -> Record:
    """A row with its prediction: `predicted_label`, `predicted_score`, …, or `predicted` if it is a list."""
    if error:
        return {**row, "error": error}
    if isinstance(prediction, Mapping):
        return {**row, **{f"predicted_{name}": value for name, value in prediction.items()}}
    return {**row, "predicted": prediction}


class PredictionsFile:
    """A writer of records: CSV or TSV with the columns of the first chunk, or JSON lines."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in SUFFIXES:
            raise RecipeError(f"--out {path}: expected a name that ends in {', '.join(SUFFIXES)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("w", encoding="utf-8", newline="")
        self._csv_writer: csv.DictWriter[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with name_file_in_errors(self.path):
            self._file.close()

    def write(self, records: Sequence[Record]) -> None:
        """Append records; the first call decides the columns. Cells of a row without a prediction are empty."""
        with name_file_in_errors(self.path):
            self._write(records)

    def _write(self, records: Sequence[Record]) -> None:
        if self.path.suffix == ".jsonl":
            self._file.writelines(untrusted_files.to_json(record, default=str) + "\n" for record in records)
            return
        if self._csv_writer is None and records:
            names = dict.fromkeys(name for record in records for name in record if name != "error")
            delimiter = DELIMITERS[self.path.suffix]
            self._csv_writer = csv.DictWriter(self._file, list(names), extrasaction="ignore", delimiter=delimiter,
                                         lineterminator="\n")  # fmt: skip
            self._csv_writer.writeheader()
        if self._csv_writer is not None:
            self._csv_writer.writerows(
                {name: _format_cell(value) for name, value in record.items()} for record in records
            )


def _format_cell(value: Any) -> Any:
    return untrusted_files.to_json(value, default=str) if isinstance(value, list | tuple | Mapping) else value
