"""Tables with a delimiter: CSV, TSV, and what spreadsheets make of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import cast

from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop
from meristem.corpus.encoding import decoded
from meristem.corpus.opening import Stream
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.columns import KNOWN, Columns, columns_of
from meristem.corpus.readers.lines import numbered
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import File
from meristem.corpus.tables import (
    SAMPLED_ROWS,
    Dialect,
    Row,
    RowLines,
    column_names,
    column_numbers,
    detect_dialect,
    is_header,
    is_separator_line,
    split_rows,
)

REJOINED = "row with a delimiter in its last column"


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of a table, by row; the first row names the columns where it is a header."""
    file = cast(File, piece.source)
    stream = Stream(file, account)
    texts = decoded(stream, account)
    head = next(texts)
    dialect, sample = _sampled(head, stream.whole, file.table_ending)
    named = is_header(sample, _known_names(settings))
    names = column_names(sample[0]) if named and sample else column_numbers(sample)
    columns: Columns | None = None
    at: list[int] = []
    waiting = named
    lines = RowLines(numbered(chain([head], texts)))
    for place, row in _rows(lines, dialect, file.name):
        if columns is None and isinstance(row, list):
            columns = columns_of(place, names, names, settings)
            at = [names.index(name) for name in columns.names]
        if waiting and isinstance(row, list):
            waiting = False
            continue
        cells = _cells(row, names, at, dialect, account) if isinstance(row, list) else row
        if columns is None or isinstance(cells, Drop):
            drop = cells if isinstance(cells, Drop) else Drop("broken row")
            account.warn(f"{place}: {drop.reason}")
            yield drop
        else:
            yield from columns.documents(cells, place, file.path.parent, account)


def _known_names(settings: CorpusSettings) -> set[str]:
    """Names that tell a header from data: usual ones, and those that are set."""
    wanted = (settings.text, settings.target, settings.picture)
    return {*KNOWN, *(name.lower() for name in wanted if isinstance(name, str) and not name.isdigit())}


def _sampled(head: str, whole: bool, ending: str) -> tuple[Dialect, list[Row]]:
    """The dialect of a table that begins so, and its first rows."""
    lines = head.split("\n")
    lines = [line for line in (lines if whole or len(lines) == 1 else lines[:-1]) if line.strip()]
    dialect = detect_dialect(lines, ending)
    rows = islice(split_rows(iter(lines), dialect, strict=False), SAMPLED_ROWS)
    sample = [row for row in rows if isinstance(row, list)]
    return dialect, sample[1:] if sample and is_separator_line(sample[0], dialect) else sample


def _rows(lines: RowLines, dialect: Dialect, name: str) -> Iterator[tuple[str, Row | Drop]]:
    """Rows that are not blank, each with its place, and a drop for each that is broken."""
    first = True
    for row in split_rows(lines, dialect, strict=False):
        place = f"{name}:{lines.begun}"
        lines.begun = 0
        yield from _overlong(lines, name)
        if isinstance(row, str):
            yield place, Drop("broken row")
        elif row not in ([], [""]) and not (first and is_separator_line(row, dialect)):
            yield place, row
        first = False
    yield from _overlong(lines, name)


def _overlong(lines: RowLines, name: str) -> Iterator[tuple[str, Drop]]:
    while lines.overlong:
        lines.overlong -= 1
        yield name, Drop("line too long")


def _cells(row: Row, names: Sequence[str], at: Sequence[int], dialect: Dialect, account: Account) -> Row | Drop:
    """The cells that are wanted of a row; one with more cells than columns is mended only where that loses nothing."""
    if len(row) <= max(at):
        return Drop("row too short")
    if len(row) > len(names) and any(row[len(names) :]):
        if max(at) != len(names) - 1:
            return Drop("more cells than columns")
        account.repaired[REJOINED] += 1
        row = [*row[: len(names) - 1], dialect.delimiter.join(row[len(names) - 1 :])]
    return [row[number] for number in at]
