"""Reader for delimited tables: CSV, TSV, and their spreadsheet variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import cast

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop
from meristem.corpus.read.byte_stream import ByteStream
from meristem.corpus.read.csv_dialect import (
    SAMPLED_ROWS,
    RowLines,
    TableDialect,
    TableRow,
    column_names,
    column_numbers,
    detect_dialect,
    is_header,
    is_separator_line,
    split_rows,
)
from meristem.corpus.read.encoding import decode_stream
from meristem.corpus.read.formats.columns import HEADER_NAMES, TextColumns, find_columns
from meristem.corpus.read.formats.lines import number_lines
from meristem.corpus.read.read_ranges import ReadRange
from meristem.corpus.read.source_kinds import FileSource
from meristem.corpus.settings import CorpusSettings

REJOINED = "row with a delimiter in its last column"


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """The documents of a table, by row; the first row names the columns if it is a header."""
    file = cast(FileSource, read_range.source)
    stream = ByteStream(file, account)
    texts = decode_stream(stream, account)
    head = next(texts)
    dialect, sample = _detect_table(head, stream.head_is_all, file.table_extension)
    has_header = is_header(sample, _known_names(settings))
    names = column_names(sample[0]) if has_header and sample else column_numbers(sample)
    columns: TextColumns | None = None
    column_indices: list[int] = []
    expects_header = has_header
    lines = RowLines(number_lines(chain([head], texts)))
    for place, row in _iter_rows(lines, dialect, file.name):
        if columns is None and isinstance(row, list):
            columns = find_columns(place, names, names, settings)
            column_indices = [names.index(name) for name in columns.names]
        if expects_header and isinstance(row, list):
            expects_header = False
            continue
        cells = _select_cells(row, names, column_indices, dialect, account) if isinstance(row, list) else row
        if columns is None or isinstance(cells, Drop):
            dropped = cells if isinstance(cells, Drop) else Drop("broken row")
            account.warn(f"{place}: {dropped.reason}")
            yield dropped
        else:
            yield from columns.documents(cells, place, file.path.parent, account)


def _known_names(settings: CorpusSettings) -> set[str]:
    """Names that identify a header: usual ones, and those in the settings."""
    requested = (settings.text, settings.target, settings.picture)
    return {*HEADER_NAMES, *(name.lower() for name in requested if isinstance(name, str) and not name.isdigit())}


def _detect_table(head: str, is_complete: bool, extension: str) -> tuple[TableDialect, list[TableRow]]:
    """The dialect of a table, given its head, and its first rows."""
    lines = head.split("\n")
    lines = [line for line in (lines if is_complete or len(lines) == 1 else lines[:-1]) if line.strip()]
    dialect = detect_dialect(lines, extension)
    rows = islice(split_rows(iter(lines), dialect, strict=False), SAMPLED_ROWS)
    sample = [row for row in rows if isinstance(row, list)]
    return dialect, sample[1:] if sample and is_separator_line(sample[0], dialect) else sample


def _iter_rows(lines: RowLines, dialect: TableDialect, name: str) -> Iterator[tuple[str, TableRow | Drop]]:
    """Non-blank rows with their locations, and a drop for each broken row."""
    first = True
    for row in split_rows(lines, dialect, strict=False):
        place = f"{name}:{lines.first_line}"
        lines.first_line = 0
        yield from _drop_overlong(lines, name)
        if isinstance(row, str):
            yield place, Drop("broken row")
        elif row not in ([], [""]) and not (first and is_separator_line(row, dialect)):
            yield place, row
        first = False
    yield from _drop_overlong(lines, name)


def _drop_overlong(lines: RowLines, name: str) -> Iterator[tuple[str, Drop]]:
    while lines.overlong:
        lines.overlong -= 1
        yield name, Drop("line too long")


def _select_cells(
    row: TableRow, names: Sequence[str], column_indices: Sequence[int], dialect: TableDialect, account: CorpusAccount
) -> TableRow | Drop:
    """The needed cells of a row; a row with too many cells is repaired only if that loses nothing."""
    if len(row) <= max(column_indices):
        return Drop("row too short")
    if len(row) > len(names) and any(row[len(names) :]):
        if max(column_indices) != len(names) - 1:
            return Drop("more cells than columns")
        account.repaired[REJOINED] += 1
        row = [*row[: len(names) - 1], dialect.delimiter.join(row[len(names) - 1 :])]
    return [row[number] for number in column_indices]
