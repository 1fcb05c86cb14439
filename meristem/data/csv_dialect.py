"""CSV and TSV dialects: delimiter, quoting and header of a table, detected from its first rows, and its rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

MAX_CELL_CHARS = 4_000_000
"""Maximum characters of a cell; `csv` uses four bytes for each."""
SAMPLED_ROWS = 1000
"""Rows from which delimiter, quotes and header are detected."""
DELIMITERS = {".csv": ",\t;|", ".tsv": "\t", ".tab": "\t"}
"""File extension → possible delimiters, most likely first; Excel writes `;` or tabs into .csv in many countries."""
MAX_CELL_LINES = 100
"""Plausible maximum number of lines in a quoted cell."""
COLUMN_NAME = re.compile(r"[^\W\d][\w /-]{0,39}")
SEPARATOR_LINE = re.compile(r"sep=(.)")
"""The line in which Excel declares the delimiter, before the header."""

TableRow = list[str]


@dataclass(frozen=True)
class TableDialect:
    """Delimiter and quoting of a table."""

    delimiter: str
    quoted: bool
    """Whether cells with delimiters or newlines are quoted."""
    wrapped: bool = False
    """Tab-separated: whether every cell is quoted."""


def detect_dialect(first_lines: Sequence[str], extension: str) -> TableDialect:
    """The delimiter that gives most lines the same number of cells; quoted if lines are only consistent with quotes."""
    if first_lines and (separator_match := SEPARATOR_LINE.fullmatch(first_lines[0].strip())):
        return TableDialect(separator_match[1], quoted=True)
    sample = first_lines[:SAMPLED_ROWS]
    candidates = DELIMITERS.get(extension, "\t,;|")
    delimiter = max(
        candidates,
        key=lambda delimiter_char: (
            _dialect_consistency(sample, TableDialect(delimiter_char, delimiter_char != "\t")),
            -candidates.index(delimiter_char),
        ),
    )
    if delimiter != "\t":
        return TableDialect(delimiter, quoted=True)
    unquoted, quoted = TableDialect("\t", quoted=False), TableDialect("\t", quoted=True)
    if _dialect_consistency(sample, unquoted) < 1 and _dialect_consistency(sample, quoted) == 1:
        return quoted
    wrapped = all(len(cell) > 1 and cell[0] == cell[-1] == '"' for line in sample for cell in line.split("\t"))
    return TableDialect("\t", quoted=False, wrapped=wrapped)


def split_rows(source: Iterable[str], dialect: TableDialect, *, strict: bool = True) -> Iterator[TableRow | str]:
    """The cells of each row, or an error message; `strict` also rejects stray quotes inside cells."""
    if not dialect.quoted:
        for line in source:
            cells = line.split(dialect.delimiter)
            yield [_unwrap_cell(cell, dialect.wrapped) for cell in cells] if '"' in line else cells
        return
    csv.field_size_limit(MAX_CELL_CHARS)
    rows = csv.reader((line + "\n" for line in source), delimiter=dialect.delimiter, strict=strict)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)


def is_separator_line(row: TableRow, dialect: TableDialect) -> bool:
    """Whether a first row is Excel's `sep=;`, which has no cells."""
    return SEPARATOR_LINE.fullmatch(dialect.delimiter.join(row).strip()) is not None


def is_header(first: Sequence[TableRow], known: Collection[str]) -> bool:
    """Whether the first row is a header: it has a known name (lower case), or differs from the rows below."""
    if not first:
        return True
    names = [cell.strip().lower() for cell in first[0]]
    column_values = [
        {row[column_index].strip().lower() for row in first[1:] if column_index < len(row)}
        for column_index in range(len(names))
    ]
    if any(name in column for name, column in zip(names, column_values, strict=True)):
        return False  # a label occurs again, a column name does not
    if set(names) & set(known):
        return True
    return len(first) > 1 and len(set(names)) == len(names) and all(map(COLUMN_NAME.fullmatch, names))


def column_names(row: TableRow) -> tuple[str, ...]:
    """Unique names; a column without a name gets its number."""
    names: list[str] = []
    for number, cell in enumerate(row, 1):
        name = cell.strip() or str(number)
        names.append(name if name not in names else f"{name}.{number}")
    return tuple(names)


def column_numbers(first: Sequence[TableRow]) -> tuple[str, ...]:
    """The columns of a table without a header: 1, 2, 3, …"""
    return tuple(str(number + 1) for number in range(max(map(len, first), default=0)))


class RowLines:
    """Lines to be parsed into rows; records where the current row began."""

    def __init__(self, source: Iterable[tuple[int, str | None]]) -> None:
        self._source = source
        self.first_line = 0
        """Line number where the row began; the consumer of the row resets it to 0."""
        self.overlong: list[int] = []
        """Numbers of the lines that were skipped as too long; the consumer empties it."""

    def __iter__(self) -> Iterator[str]:
        for number, line in self._source:
            self.first_line = self.first_line or number
            if line is None:
                self.overlong.append(number)
            else:
                yield line


def _dialect_consistency(sample: Sequence[str], dialect: TableDialect) -> float:
    """The share of rows with the most common number of cells; 0 if that is one, or if quotes are unbalanced."""
    lines = RowLines(enumerate(sample, 1))
    counts: Counter[int] = Counter()
    for row in split_rows(lines, dialect):
        if isinstance(row, list):
            counts[len(row)] += 1
        elif len(sample) - lines.first_line > MAX_CELL_LINES:  # else a cell cut off at the end of the sample
            return 0.0
        lines.first_line = 0
    (cells, count), *_ = counts.most_common(1) or [(0, 0)]
    return count / counts.total() if cells > 1 else 0.0


def _unwrap_cell(cell: str, wrapped: bool) -> str:
    """A cell without the quotes a table writer added; a text that is itself in quotes keeps them."""
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inner = cell[1:-1]
    doubled = inner.replace('""', "")
    is_wrapped = wrapped or ('""' in inner and '"' not in doubled)
    return inner.replace('""', '"') if is_wrapped else cell
