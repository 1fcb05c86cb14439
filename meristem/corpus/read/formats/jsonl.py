"""Reader for JSON lines: one object per line, or one string."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop, cut_document
from meristem.corpus.read.byte_stream import ByteStream
from meristem.corpus.read.encoding import decode_stream
from meristem.corpus.read.formats.columns import TextColumns, find_columns
from meristem.corpus.read.formats.lines import number_lines
from meristem.corpus.read.read_ranges import ReadRange
from meristem.corpus.read.source_kinds import FileSource
from meristem.corpus.settings import CorpusSettings
from meristem.utils import untrusted_files


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """The documents of a file; the first object determines which columns are read."""
    file = cast(FileSource, read_range.source)
    columns: TextColumns | None = None
    for number, line in number_lines(decode_stream(ByteStream(file, account), account)):
        if line is not None and not line.strip():
            continue
        place = f"{file.name}:{number}"
        record = Drop("line too long") if line is None else _parse_line(line)
        if isinstance(record, dict):
            if columns is None:
                strings = [name for name, value in record.items() if isinstance(value, str)]
                columns = find_columns(place, list(record), strings, settings)
            values = [record.get(name) for name in columns.names]
            yield from columns.documents(values, place, file.path.parent, account)
        elif isinstance(record, Drop):
            account.warn(f"{place}: {record.reason}")
            yield record
        elif isinstance(record, str) and not settings.side_separator:
            yield from cut_document(record, place)
        else:
            yield Drop("no text in the column")


def _parse_line(line: str) -> Any:
    try:
        return untrusted_files.parse_json_line(line)
    except ValueError:
        return Drop("broken JSON")
