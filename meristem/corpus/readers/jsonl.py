"""JSON lines: one object per line, or one string."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from meristem import bounded
from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop, cut
from meristem.corpus.encoding import decoded
from meristem.corpus.opening import Stream
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.columns import Columns, columns_of
from meristem.corpus.readers.lines import numbered
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import File


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of a file; the first object decides which columns are read."""
    file = cast(File, piece.source)
    columns: Columns | None = None
    for number, line in numbered(decoded(Stream(file, account), account)):
        if line is not None and not line.strip():
            continue
        place = f"{file.name}:{number}"
        record = Drop("line too long") if line is None else _parsed(line)
        if isinstance(record, dict):
            if columns is None:
                strings = [name for name, value in record.items() if isinstance(value, str)]
                columns = columns_of(place, list(record), strings, settings)
            values = [record.get(name) for name in columns.names]
            yield from columns.documents(values, place, file.path.parent, account)
        elif isinstance(record, Drop):
            account.warn(f"{place}: {record.reason}")
            yield record
        elif isinstance(record, str) and not settings.mark:
            yield from cut(record, place)
        else:
            yield Drop("no text in the column")


def _parsed(line: str) -> Any:
    try:
        return bounded.row(line)
    except ValueError:
        return Drop("broken JSON")
