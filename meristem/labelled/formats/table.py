"""Tables of lines: comma-separated with quotes, tab-separated without, whichever a file turns out to be."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from meristem.corpus.readers.lines import LONGEST_CELL
from meristem.corpus.sources import File
from meristem.errors import MeristemError
from meristem.labelled.columns import USUAL
from meristem.labelled.formats import Asked
from meristem.labelled.found import Flaw, Found, Notes, Rows
from meristem.labelled.opening import file_of, head, lines
from meristem.labelled.settings import DataSettings

LOOKED_AT = 1000
"""Rows from which delimiter, quotes and header are told."""
DELIMITERS = {".csv": ",\t;|", ".tsv": "\t", ".tab": "\t"}
MOST_LINES = 100
"""Lines that a cell in quotes may reasonably have."""
NAME = re.compile(r"[^\W\d][\w /-]{0,39}")

Row = list[str]


@dataclass(frozen=True)
class Style:
    """How a table is written."""

    delimiter: str
    quoted: bool
    """Whether quotes wrap cells that hold delimiters or newlines."""
    wrapped: bool = False
    """Tab-separated: whether every cell stands in quotes."""


def read(asked: Asked, notes: Notes) -> Rows:
    """Rows by the names in the first line, or by number where it holds data."""
    file = file_of(asked.path)
    begun = [line for line in head(file).split("\n") if line.strip()]
    if not begun:
        raise MeristemError(f"{file.name}: no lines in this file")
    style = style_of(begun, file.ending)
    first = [row for row in islice(_cells(iter(begun), style), LOOKED_AT) if isinstance(row, list)]
    named = _has_header(first, asked.data) if asked.data.header is None else asked.data.header
    columns = _named(first[0]) if named and first else _numbered(first)
    return Rows(_found(file, style, columns, named, notes), file.name, columns)


def style_of(begun: Sequence[str], ending: str) -> Style:
    """The delimiter that cuts most lines into equally many cells; quotes where lines only fit with them."""
    some = begun[:LOOKED_AT]
    candidates = DELIMITERS.get(ending, "\t,;|")
    delimiter = max(candidates, key=lambda mark: (_regular(some, Style(mark, mark != "\t")), -candidates.index(mark)))
    if delimiter != "\t":
        return Style(delimiter, quoted=True)
    bare, quoted = Style("\t", quoted=False), Style("\t", quoted=True)
    if _regular(some, bare) < 1 and _regular(some, quoted) == 1:
        return quoted
    wrapped = all(len(cell) > 1 and cell[0] == cell[-1] == '"' for line in some for cell in line.split("\t"))
    return Style("\t", quoted=False, wrapped=wrapped)


def _regular(some: Sequence[str], style: Style) -> float:
    """The share of rows with the commonest number of cells; nothing where that is one, or where quotes are broken."""
    passed = _Passed(enumerate(some, 1))
    counts: Counter[int] = Counter()
    for row in _cells(passed, style):
        if isinstance(row, list):
            counts[len(row)] += 1
        elif len(some) - passed.begun > MOST_LINES:  # else a cell that is cut off where looking ends
            return 0.0
        passed.begun = 0
    (cells, count), *_ = counts.most_common(1) or [(0, 0)]
    return count / counts.total() if cells > 1 else 0.0


def _cells(source: Iterable[str], style: Style) -> Iterator[Row | str]:
    """The cells of each row, or what is wrong with it."""
    if not style.quoted:
        for line in source:
            cells = line.split(style.delimiter)
            yield [_unwrapped(cell, style.wrapped) for cell in cells] if '"' in line else cells
        return
    csv.field_size_limit(LONGEST_CELL)
    rows = csv.reader((line + "\n" for line in source), delimiter=style.delimiter, strict=True)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)


def _unwrapped(cell: str, wrapped: bool) -> str:
    """A cell that a writer of tables put in quotes, as it was; a text that only stands in quotes keeps them."""
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inside = cell[1:-1]
    doubled = inside.replace('""', "")
    written = wrapped or ('""' in inside and '"' not in doubled)
    return inside.replace('""', '"') if written else cell


def _has_header(first: Sequence[Row], data: DataSettings) -> bool:
    """Whether the first row names columns: by a usual name, one that is set, or by being unlike what is below it."""
    if not first:
        return True
    names = [cell.strip().lower() for cell in first[0]]
    below = [{row[at].strip().lower() for row in first[1:] if at < len(row)} for at in range(len(names))]
    if any(name in column for name, column in zip(names, below, strict=True)):
        return False  # a label comes again, a name does not
    told = {str(value).lower() for value in data.model_dump().values() if isinstance(value, str)}
    if set(names) & (USUAL | {name for name in told if not name.isdigit()}):
        return True
    return len(first) > 1 and len(set(names)) == len(names) and all(map(NAME.fullmatch, names))


def _named(row: Row) -> tuple[str, ...]:
    """Names, each once; a column without one is called by its number."""
    out: list[str] = []
    for number, cell in enumerate(row, 1):
        name = cell.strip() or str(number)
        out.append(name if name not in out else f"{name}.{number}")
    return tuple(out)


def _numbered(first: Sequence[Row]) -> tuple[str, ...]:
    return tuple(str(number + 1) for number in range(max(map(len, first), default=0)))


def _found(file: File, style: Style, columns: tuple[str, ...], named: bool, notes: Notes) -> Iterator[Found | Flaw]:
    passed = _Passed(lines(file, notes))
    waiting = named
    for row in _cells(passed, style):
        place = f"{file.name}:{passed.begun}"
        passed.begun = 0
        if isinstance(row, str):
            yield Flaw(f"{place}: a quote that is not closed or not doubled ({row}); mend it, or save the table again")
        elif row in ([], [""]):
            continue
        elif waiting:
            waiting = False
        elif named and len(row) > len(columns) and any(row[len(columns) :]):
            yield Flaw(f"{place}: {len(row)} cells, but the first line names {len(columns)} columns")
        else:
            yield Found(dict(zip(columns, row, strict=False)), place)


class _Passed:
    """Lines on their way to be cut into cells; knows where the row that is being read began."""

    def __init__(self, source: Iterable[tuple[int, str]]) -> None:
        self._source = source
        self.begun = 0

    def __iter__(self) -> Iterator[str]:
        for number, line in self._source:
            self.begun = self.begun or number
            yield line
