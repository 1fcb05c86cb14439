"""Documents of a range of the corpus: the records of its source, and drops for those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop, cut_document
from meristem.corpus.read_ranges import ReadRange
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.text_columns import HEADER_NAMES, TextColumns, find_columns
from meristem.data.byte_stream import UnreadableFileError
from meristem.data.compression import TruncatedFileError
from meristem.data.open_source import open_source
from meristem.data.records import BadRecord, ReadOptions, Record
from meristem.data.sources import BuiltinSource, FileSource, ParallelSource, Source


def read_documents(
    read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount
) -> Iterator[Document | Drop]:
    """Everything in a range; an unreadable file is counted as rejected, a damaged one is read up to the damage."""
    name = read_range.source.name
    has_items = read_range.start > 0 or read_range.stop is not None  # a range of a file may be empty
    try:
        for item in _iter_documents(read_range, settings, account):
            has_items = True
            yield item
        if not has_items:
            account.reject_file("no text in it", name)
    except UnreadableFileError as error:
        account.reject_file(str(error), name)
    except TruncatedFileError as error:
        account.warn(f"{name}: {error}; the documents before that point are kept")
        yield Drop(str(error))


def _iter_documents(
    read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount
) -> Iterator[Document | Drop]:
    source = read_range.source
    reader = open_source(source, _read_options(read_range, settings), account)
    folder = source.path.parent if isinstance(source, FileSource) else None
    columns: TextColumns | None = None
    if isinstance(source, FileSource) and reader.columns:
        columns = find_columns(reader.columns_location, reader.columns, reader.text_columns, settings)
    for record in reader.records(columns.names if columns else None):
        if isinstance(record, BadRecord):
            account.warn(f"{record.location}: {record.reason}")
            yield Drop(record.reason)
        elif isinstance(record.value, dict):
            columns = columns or _columns_of(record, source, settings)
            values = [record.value.get(name) for name in columns.names]
            yield from columns.documents(values, record.location, folder, account)
        elif isinstance(record.value, str) and (isinstance(source, BuiltinSource) or not settings.side_separator):
            yield from cut_document(record.value, record.location)
        else:
            yield Drop("no text in the column")


def _columns_of(record: Record, source: Source, settings: CorpusSettings) -> TextColumns:
    """The columns of a source that does not name them before its first record."""
    if isinstance(source, BuiltinSource | ParallelSource):
        has_images = "picture" in record.value
        return TextColumns("caption", image="picture") if has_images else TextColumns("source", target="target")
    strings = [name for name, value in record.value.items() if isinstance(value, str)]
    location = record.location if isinstance(source, FileSource) else source.name
    return find_columns(location, list(record.value), strings, settings)


def _read_options(read_range: ReadRange, settings: CorpusSettings) -> ReadOptions:
    requested = (settings.text, settings.target, settings.image)
    names = {name.lower() for name in requested if isinstance(name, str) and not name.isdigit()}
    return ReadOptions(
        known_columns=HEADER_NAMES | names,
        strict_quotes=False,
        document_unit=read_range.document_unit or settings.document,
        start=read_range.start,
        stop=read_range.stop,
        encoding=read_range.encoding,
    )
