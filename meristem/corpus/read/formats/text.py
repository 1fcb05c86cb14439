"""Reader for plain text: one document per file, per block between blank lines, or per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import MAX_DOCUMENT_CHARS, Document, Drop, cut_document, cut_position
from meristem.corpus.read.byte_stream import ByteStream
from meristem.corpus.read.encoding import decode_stream
from meristem.corpus.read.read_ranges import ARTICLE_BREAK, ReadRange, choose_document_unit
from meristem.corpus.read.source_kinds import FileSource
from meristem.corpus.settings import CorpusSettings

UNIT_SEPARATORS = {
    "line": re.compile("\n"),
    "block": re.compile("\n(?:[ \t]*\n)+"),
    "file": re.compile("(?!)"),
    "article": ARTICLE_BREAK,
}


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """The documents of a text file or a range of it; lines are counted from the start of the range."""
    file = cast(FileSource, read_range.source)
    stream = ByteStream(file, account, read_range.start, read_range.stop)
    texts = decode_stream(stream, account, read_range.encoding)
    rest = next(texts)
    separator = UNIT_SEPARATORS[
        read_range.document_unit or choose_document_unit(rest, len(stream.head), settings, file)
    ]
    name, line = file.name, 1
    while True:
        start = 0
        for match in separator.finditer(rest):
            yield from _documents(rest[start : match.start()], name, line)
            line += rest.count("\n", start, match.end())
            start = match.end()
        rest = rest[start:]
        while len(rest) > MAX_DOCUMENT_CHARS:
            cut_at = cut_position(rest)
            yield from _documents(rest[:cut_at], name, line)
            line += rest.count("\n", 0, cut_at)
            rest = rest[cut_at:]
        next_text = next(texts, None)
        if next_text is None:
            break
        rest += next_text
    yield from _documents(rest, name, line)
    account.lines += line - 1 + rest.count("\n")


def _documents(text: str, name: str, line: int) -> Iterator[Document]:
    if text and not text.isspace():  # blank lines separate documents
        yield from cut_document(text, f"{name}:{line}")
