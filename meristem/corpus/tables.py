"""CSV and TSV dialects: delimiter, quoting and header of a table, detected from its first rows, and its rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

LONGEST_CELL = 4_000_000
"""Characters of a cell; `csv` holds each in four bytes."""
SAMPLED_ROWS = 1000
"""Rows from which delimiter, quotes and header are detected."""
DELIMITERS = {".csv": ",\t;|", ".tsv": "\t", ".tab": "\t"}
"""File ending → delimiters it may have, the likeliest first; Excel writes `;` or tabs into .csv in many countries."""
MOST_LINES = 100
"""Lines that a cell in quotes may reasonably have."""
NAME = re.compile(r"[^\W\d][\w /-]{0,39}")
SEPARATOR_LINE = re.compile(r"sep=(.)")
"""The line with which Excel names the delimiter before the header."""

Row = list[str]


@dataclass(frozen=True)
class Dialect:
    """How a table is written."""

    delimiter: str
    quoted: bool
    """Whether quotes wrap cells that hold delimiters or newlines."""
    wrapped: bool = False
    """Tab-separated: whether every cell stands in quotes."""


def detect_dialect(first_lines: Sequence[str], ending: str) -> Dialect:
    """The delimiter that cuts most lines into equally many cells; quotes where lines only fit with them."""
    if first_lines and (named := SEPARATOR_LINE.fullmatch(first_lines[0].strip())):
        return Dialect(named[1], quoted=True)
    sample = first_lines[:SAMPLED_ROWS]
    candidates = DELIMITERS.get(ending, "\t,;|")
    delimiter = max(
        candidates, key=lambda mark: (_regularity(sample, Dialect(mark, mark != "\t")), -candidates.index(mark))
    )
    if delimiter != "\t":
        return Dialect(delimiter, quoted=True)
    bare, quoted = Dialect("\t", quoted=False), Dialect("\t", quoted=True)
    if _regularity(sample, bare) < 1 and _regularity(sample, quoted) == 1:
        return quoted
    wrapped = all(len(cell) > 1 and cell[0] == cell[-1] == '"' for line in sample for cell in line.split("\t"))
    return Dialect("\t", quoted=False, wrapped=wrapped)


def split_rows(source: Iterable[str], dialect: Dialect, *, strict: bool = True) -> Iterator[Row | str]:
    """The cells of each row, or what is wrong with it; a strict reader also refuses stray quotes inside cells."""
    if not dialect.quoted:
        for line in source:
            cells = line.split(dialect.delimiter)
            yield [_unwrapped(cell, dialect.wrapped) for cell in cells] if '"' in line else cells
        return
    csv.field_size_limit(LONGEST_CELL)
    rows = csv.reader((line + "\n" for line in source), delimiter=dialect.delimiter, strict=strict)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)


def is_separator_line(row: Row, dialect: Dialect) -> bool:
    """Whether a first row is Excel's `sep=;`, which holds no cells."""
    return SEPARATOR_LINE.fullmatch(dialect.delimiter.join(row).strip()) is not None


def is_header(first: Sequence[Row], known: Collection[str]) -> bool:
    """Whether the first row names columns: by a known name (lower case), or by being unlike what is below it."""
    if not first:
        return True
    names = [cell.strip().lower() for cell in first[0]]
    below = [{row[at].strip().lower() for row in first[1:] if at < len(row)} for at in range(len(names))]
    if any(name in column for name, column in zip(names, below, strict=True)):
        return False  # a label comes again, a name does not
    if set(names) & set(known):
        return True
    return len(first) > 1 and len(set(names)) == len(names) and all(map(NAME.fullmatch, names))


def column_names(row: Row) -> tuple[str, ...]:
    """Names, each once; a column without one is called by its number."""
    out: list[str] = []
    for number, cell in enumerate(row, 1):
        name = cell.strip() or str(number)
        out.append(name if name not in out else f"{name}.{number}")
    return tuple(out)


def column_numbers(first: Sequence[Row]) -> tuple[str, ...]:
    """The columns of a table without a header: 1, 2, 3, …"""
    return tuple(str(number + 1) for number in range(max(map(len, first), default=0)))


class RowLines:
    """Lines on their way to be cut into cells; knows where the row that is being read began."""

    def __init__(self, source: Iterable[tuple[int, str | None]]) -> None:
        self._source = source
        self.begun = 0
        """Number of the row's first line; whoever takes the row sets it back to 0."""
        self.overlong = 0
        """Lines that were too long to be given."""

    def __iter__(self) -> Iterator[str]:
        for number, line in self._source:
            self.begun = self.begun or number
            if line is None:
                self.overlong += 1
            else:
                yield line


def _regularity(sample: Sequence[str], dialect: Dialect) -> float:
    """The share of rows with the commonest number of cells; 0 where that is one, or where quotes are broken."""
    lines = RowLines(enumerate(sample, 1))
    counts: Counter[int] = Counter()
    for row in split_rows(lines, dialect):
        if isinstance(row, list):
            counts[len(row)] += 1
        elif len(sample) - lines.begun > MOST_LINES:  # else a cell that is cut off where the sample ends
            return 0.0
        lines.begun = 0
    (cells, count), *_ = counts.most_common(1) or [(0, 0)]
    return count / counts.total() if cells > 1 else 0.0


def _unwrapped(cell: str, wrapped: bool) -> str:
    """A cell that a writer of tables put in quotes, as it was; a text that only stands in quotes keeps them."""
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inside = cell[1:-1]
    doubled = inside.replace('""', "")
    written = wrapped or ('""' in inside and '"' not in doubled)
    return inside.replace('""', '"') if written else cell
