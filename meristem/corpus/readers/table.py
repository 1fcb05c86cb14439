"""Tables: comma-separated with quotes, tab-separated without."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import cast

from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop
from meristem.corpus.encoding import decoded
from meristem.corpus.opening import Stream
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.columns import Columns, columns_of
from meristem.corpus.readers.lines import LONGEST_CELL, numbered
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sources import File


class Lines:
    """Lines for `csv`, which pulls them; knows how far it is and how many lines were too long to give."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._numbered = numbered(texts)
        self.number = 0
        self.overlong = 0

    def __iter__(self) -> Iterator[str]:
        for number, line in self._numbered:
            self.number = number
            if line is None:
                self.overlong += 1
            else:
                yield line + "\n"


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of a table whose first row names its columns."""
    file = cast(File, piece.source)
    csv.field_size_limit(LONGEST_CELL)
    lines = Lines(decoded(Stream(file, account), account))
    columns: Columns | None = None
    at: list[int] = []
    for row in _rows(lines, file.ending):
        place = f"{file.name}:{lines.number}"
        if isinstance(row, list) and columns is None:
            names = [name.strip() for name in row]
            columns = columns_of(place, names, names, settings)
            at = [names.index(name) for name in columns.names]
            continue
        if isinstance(row, list) and columns is not None and len(row) > max(at):
            yield from columns.documents([row[number] for number in at], place, file.path.parent, account)
        else:
            drop = row if isinstance(row, Drop) else Drop("row too short")
            account.warn(f"{place}: {drop.reason}")
            yield drop


def _rows(lines: Lines, ending: str) -> Iterator[list[str] | Drop]:
    """Rows that are not blank, and a drop for each that is broken."""
    tabs = ending == ".tsv"
    # A tab cannot stand inside a field, so tab-separated files need no quotes, and in many a quote is only a quote.
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(lines)
    while True:
        try:
            row: list[str] | Drop | None = next(rows, None)
        except csv.Error:
            row = Drop("broken row")
        while lines.overlong:
            lines.overlong -= 1
            yield Drop("line too long")
        if row is None:
            return
        if row:
            yield [_unquoted(field) for field in row] if tabs and isinstance(row, list) else row


def _unquoted(field: str) -> str:
    """A field that a spreadsheet wrapped in quotes, as it was."""
    quoted = len(field) >= 2 and field[0] == field[-1] == '"'
    return field[1:-1].replace('""', '"') if quoted else field
