"""Readers, one per file format; each yields documents, and drops for documents that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop
from meristem.corpus.read.byte_stream import UnreadableFileError
from meristem.corpus.read.compression import TruncatedFileError
from meristem.corpus.read.read_ranges import ReadRange
from meristem.corpus.settings import CorpusSettings

Reader = Callable[[ReadRange, CorpusSettings, CorpusAccount], Iterator[Document | Drop]]


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """Everything in a range; an unreadable file is counted as rejected, a damaged one is read up to the damage."""
    reader: Reader = import_module(f"meristem.corpus.read.formats.{read_range.source.format}").read
    has_items = read_range.start > 0 or read_range.stop is not None  # a range of a file may be empty
    try:
        for item in reader(read_range, settings, account):
            has_items = True
            yield item
        if not has_items:
            account.reject_file("no text in it", read_range.source.name)
    except UnreadableFileError as error:
        account.reject_file(str(error), read_range.source.name)
    except TruncatedFileError as error:
        account.warn(f"{read_range.source.name}: {error}; the documents before that point are kept")
        yield Drop(str(error))
