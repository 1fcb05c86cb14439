"""In-memory data: texts, records and DataFrames become JSON lines in the folder of their run, so that it resumes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint import disk
from meristem.checkpoint.run import Run, aside
from meristem.errors import MeristemError, RecipeError
from meristem.overrides import as_mapping
from meristem.training.material import BEGUN, refuse_other_things

Table = Any
"""A list of texts, a list of mappings with the same columns, or a DataFrame (pandas, polars, datasets)."""
SPLITS = ("train", "validation", "test")
FOLDER = "data"
"""Where a run keeps what it was given in memory."""


def is_in_memory(value: Any) -> bool:
    """Whether data are given themselves, not by a name or a path."""
    return value is not None and not isinstance(value, str | Path)


def stored_source(source: str | Path | Table | None, run: Path, *, fresh: bool) -> tuple[str | None, bool]:
    """Where the text to pretrain on is, and whether the run must still begin anew."""
    if not is_in_memory(source):
        return None if source is None else str(source), fresh
    return store({"source": source}, run, fresh=fresh)["source"], False


def stored_data(
    data: Table | Mapping[str, Any] | None, overrides: Mapping[str, Any] | Sequence[str], run: Path, *, fresh: bool
) -> tuple[Mapping[str, Any] | Sequence[str], bool]:
    """Overrides with `data` put in, splits in memory as files of the run; whether the run must still begin anew.

    `data` holds splits and the names of columns, {"train": …, "test": …, "label": "stars"}, or is the training split.
    """
    if data is None:
        return overrides, fresh
    settings = data if isinstance(data, Mapping) else {"train": data}
    tables = {name: value for name, value in settings.items() if name in SPLITS and is_in_memory(value)}
    told = {f"data.{name}": str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    if tables:
        told |= {f"data.{name}": place for name, place in store(tables, run, fresh=fresh).items()}
    return {**as_mapping(overrides), **told}, fresh and not tables


def store(tables: Mapping[str, Table], run: Path, *, fresh: bool) -> dict[str, str]:
    """Each table as a JSONL file in the run's folder; a run that was begun with other data is refused.

    `fresh` moves an old run aside first, as training would, so that what is stored here is the new one's.
    """
    lines = {name: "".join(_lines(name, table)).encode() for name, table in tables.items()}
    if fresh and run.exists():
        aside(run)
    begun = Run(run).exists()
    if not begun:
        refuse_other_things(run)
        (run / FOLDER).mkdir(parents=True, exist_ok=True)
        (run / BEGUN).touch()
    places = {name: run / FOLDER / f"{name}.jsonl" for name in tables}
    for name, place in places.items():
        if not begun:
            disk.replace(place, [lines[name]])
        elif not place.is_file() or place.read_bytes() != lines[name]:
            raise RecipeError(
                f"{run} was begun with other data than this {name}: give the run another place with out=, or begin "
                "anew with fresh=True (the old one is kept)"
            )
    return {name: str(place) for name, place in places.items()}


@contextmanager
def as_file(data: str | Path | Table | None) -> Iterator[str | None]:
    """The path of data for as long as they are read; what is in memory is written to a temporary file."""
    if not is_in_memory(data):
        yield None if data is None else str(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        path.write_text("".join(_lines("data", data)), encoding="utf-8")
        yield str(path)


def rows_of(table: Table) -> Iterator[dict[str, Any]]:
    """The rows of a table, by column; a text is a row with one column, `text`."""
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas
        table = table.to_dict(orient="records")
    elif hasattr(table, "to_dicts"):  # polars
        table = table.to_dicts()
    if isinstance(table, Mapping) or not isinstance(table, Iterable):
        raise MeristemError(f"expected a list of texts, a list of mappings or a DataFrame, got {type(table).__name__}")
    for number, row in enumerate(table):
        if not isinstance(row, str | Mapping):
            raise MeristemError(f"row {number}: expected a text or a mapping of columns, got {type(row).__name__}")
        yield {"text": row} if isinstance(row, str) else {str(name): _plain(value) for name, value in row.items()}


def _lines(name: str, table: Table) -> Iterator[str]:
    """The rows as JSON lines."""
    try:
        empty = True
        for row in rows_of(table):
            empty = False
            yield bounded.to_json(row) + "\n"
    except (MeristemError, TypeError) as error:
        raise MeristemError(f"{name}: {error}") from None
    if empty:
        raise MeristemError(f"{name}: there is nothing in it")


def _plain(value: Any) -> Any:
    """A value as JSON has it: numpy's numbers and arrays as Python's, what is missing as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
