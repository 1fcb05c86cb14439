"""Tables of lines: comma-separated with quotes, tab-separated without, whichever a file turns out to be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from meristem.corpus.source_kinds import File
from meristem.corpus.tables import (
    SAMPLED_ROWS,
    Dialect,
    RowLines,
    column_names,
    column_numbers,
    detect_dialect,
    is_header,
    is_separator_line,
    split_rows,
)
from meristem.errors import MeristemError
from meristem.labelled.columns import USUAL
from meristem.labelled.formats import Asked
from meristem.labelled.found import Flaw, Found, Notes, Rows
from meristem.labelled.opening import file_of, head, lines
from meristem.labelled.settings import DataSettings


def read(asked: Asked, notes: Notes) -> Rows:
    """Rows by the names in the first line, or by number where it holds data."""
    file = file_of(asked.path)
    begun = [line for line in head(file).split("\n") if line.strip()]
    if not begun:
        raise MeristemError(f"{file.name}: no lines in this file")
    dialect = detect_dialect(begun, file.ending)
    first = [row for row in islice(split_rows(iter(begun), dialect), SAMPLED_ROWS) if isinstance(row, list)]
    first = first[1:] if first and is_separator_line(first[0], dialect) else first
    named = is_header(first, _known_names(asked.data)) if asked.data.header is None else asked.data.header
    columns = column_names(first[0]) if named and first else column_numbers(first)
    return Rows(_found(file, dialect, columns, named, notes), file.name, columns)


def _known_names(data: DataSettings) -> set[str]:
    """Names that tell a header from data: usual ones, and those that are set."""
    told = {str(value).lower() for value in data.model_dump().values() if isinstance(value, str)}
    return {*USUAL, *(name for name in told if not name.isdigit())}


def _found(file: File, dialect: Dialect, columns: tuple[str, ...], named: bool, notes: Notes) -> Iterator[Found | Flaw]:
    passed = RowLines(lines(file, notes))
    waiting, first = named, True
    for row in split_rows(passed, dialect):
        place = f"{file.name}:{passed.begun}"
        passed.begun = 0
        if isinstance(row, str):
            yield Flaw(f"{place}: a quote that is not closed or not doubled ({row}); mend it, or save the table again")
            continue
        if row in ([], [""]) or (first and is_separator_line(row, dialect)):
            continue
        first = False
        if waiting:
            waiting = False
        elif named and len(columns) == 1:  # a text may hold what separates cells elsewhere
            yield Found({columns[0]: dialect.delimiter.join(row)}, place)
        elif named and len(row) > len(columns) and any(row[len(columns) :]):
            yield Flaw(f"{place}: {len(row)} cells, but the first line names {len(columns)} columns")
        else:
            yield Found(dict(zip(columns, row, strict=False)), place)
