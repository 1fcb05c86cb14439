"""In-memory training data: texts, records and DataFrames stored as JSON lines in the run's folder, for resuming."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder, move_aside
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.overrides import parse_overrides
from meristem.training.data.training_data import CREATING_MARKER, refuse_foreign_folder
from meristem.utils import untrusted_files

TableLike = Any
"""A list of texts, a list of mappings with the same columns, or a DataFrame (pandas, polars, datasets)."""
SPLITS = ("train", "validation", "test")
DATA_FOLDER = "data"
"""The subfolder of a run with its in-memory data."""


def is_in_memory(value: Any) -> bool:
    """Whether a value is data, not a name or path."""
    return value is not None and not isinstance(value, str | Path)


def store_source(source: str | Path | TableLike | None, run: Path, *, fresh: bool) -> tuple[str | None, bool]:
    """The path of the pretraining text (stored if in memory), and whether training must still start from scratch."""
    if not is_in_memory(source):
        return None if source is None else str(source), fresh
    return store_tables({"source": source}, run, fresh=fresh)["source"], False


def store_data(
    data: TableLike | Mapping[str, Any] | None, overrides: Mapping[str, Any] | Sequence[str], run: Path, *, fresh: bool
) -> tuple[Mapping[str, Any] | Sequence[str], bool]:
    """Overrides with the paths of `data` (stored if in memory), and whether training must still start from scratch.

    `data` maps splits and column names, {"train": …, "test": …, "label": "stars"}, or is the training split.
    """
    if data is None:
        return overrides, fresh
    settings = data if isinstance(data, Mapping) else {"train": data}
    tables = {name: value for name, value in settings.items() if name in SPLITS and is_in_memory(value)}
    data_overrides = {
        f"data.{name}": str(value) if isinstance(value, Path) else value for name, value in settings.items()
    }
    if tables:
        data_overrides |= {f"data.{name}": path for name, path in store_tables(tables, run, fresh=fresh).items()}
    return {**parse_overrides(overrides), **data_overrides}, fresh and not tables


def store_tables(tables: Mapping[str, TableLike], run: Path, *, fresh: bool) -> dict[str, str]:
    """The paths of the tables, stored as JSONL files in the run's folder; refuses a run started with other data.

    `fresh` moves an existing run aside first, as training would, so that the files belong to the new one.
    """
    lines = {name: "".join(_json_lines(name, table)).encode() for name, table in tables.items()}
    if fresh and run.exists():
        move_aside(run)
    run_exists = RunFolder(run).exists()
    if not run_exists:
        refuse_foreign_folder(run)
        (run / DATA_FOLDER).mkdir(parents=True, exist_ok=True)
        (run / CREATING_MARKER).touch()
    paths = {name: run / DATA_FOLDER / f"{name}.jsonl" for name in tables}
    for name, path in paths.items():
        if not run_exists:
            disk.atomic_write(path, [lines[name]])
        elif not path.is_file() or path.read_bytes() != lines[name]:
            raise RecipeError(
                f"{run} was started with other {name} data: choose another folder with out=, or start from scratch "
                "with fresh=True (the old run is kept)"
            )
    return {name: str(path) for name, path in paths.items()}


@contextmanager
def as_file(data: str | Path | TableLike | None) -> Iterator[str | None]:
    """The path of the data; data in memory are written to a temporary file."""
    if not is_in_memory(data):
        yield None if data is None else str(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        path.write_text("".join(_json_lines("data", data)), encoding="utf-8")
        yield str(path)


def iter_rows(table: TableLike) -> Iterator[dict[str, Any]]:
    """The rows of a table as mappings from column to value; a string becomes a row with the column `text`."""
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas
        table = table.to_dict(orient="records")
    elif hasattr(table, "to_dicts"):  # polars
        table = table.to_dicts()
    if isinstance(table, Mapping) or not isinstance(table, Iterable):
        raise MeristemError(f"expected a list of texts, a list of mappings or a DataFrame, got {type(table).__name__}")
    for number, row in enumerate(table):
        if not isinstance(row, str | Mapping):
            raise MeristemError(f"row {number}: expected a text or a mapping of columns, got {type(row).__name__}")
        yield {"text": row} if isinstance(row, str) else {str(name): _to_plain(value) for name, value in row.items()}


def _json_lines(name: str, table: TableLike) -> Iterator[str]:
    """The rows as JSON lines."""
    try:
        empty = True
        for row in iter_rows(table):
            empty = False
            yield untrusted_files.to_json(row) + "\n"
    except (MeristemError, TypeError) as error:
        raise MeristemError(f"{name}: {error}") from None
    if empty:
        raise MeristemError(f"{name}: is empty")


def _to_plain(value: Any) -> Any:
    """A value as plain data for JSON: numpy values as Python values, paths as strings, NaN as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return value
