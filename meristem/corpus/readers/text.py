"""Plain text: a document per file, per block between blank lines, or per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from meristem.corpus.account import Account
from meristem.corpus.document import LONGEST, Document, Drop, boundary, cut
from meristem.corpus.encoding import decoded
from meristem.corpus.opening import Stream
from meristem.corpus.pieces import ARTICLE, Piece, decide_cut
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import File

SEPARATORS = {"line": re.compile("\n"), "block": re.compile("\n(?:[ \t]*\n)+"), "file": re.compile("(?!)"),
              "article": ARTICLE}


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of a text file or of a range of it; lines are counted from the start of the piece."""
    file = cast(File, piece.source)
    stream = Stream(file, account, piece.start, piece.stop)
    texts = decoded(stream, account, piece.encoding)
    rest = next(texts)
    separator = SEPARATORS[piece.cut or decide_cut(rest, len(stream.head), settings, file)]
    name, line = file.name, 1
    while True:
        start = 0
        for match in separator.finditer(rest):
            yield from _documents(rest[start : match.start()], name, line)
            line += rest.count("\n", start, match.end())
            start = match.end()
        rest = rest[start:]
        while len(rest) > LONGEST:
            at = boundary(rest)
            yield from _documents(rest[:at], name, line)
            line += rest.count("\n", 0, at)
            rest = rest[at:]
        more = next(texts, None)
        if more is None:
            break
        rest += more
    yield from _documents(rest, name, line)
    account.lines += line - 1 + rest.count("\n")


def _documents(text: str, name: str, line: int) -> Iterator[Document]:
    if text and not text.isspace():  # blank lines stand between documents; they are none
        yield from cut(text, f"{name}:{line}")
