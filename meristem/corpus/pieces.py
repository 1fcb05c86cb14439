"""The reading cut into pieces that can be worked on apart: a file, a range of a large text file, a sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from meristem.corpus.account import Account
from meristem.corpus.compression import CutShort
from meristem.corpus.encoding import Encoding, encoding_of
from meristem.corpus.opening import Stream, Unreadable
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import File, Source

PIECE = 4 << 20
"""Bytes of a range of a large text file; whatever the number of processes, so that the result is the same."""

WHOLE_FILE = 64 << 10
"""Text files below this many bytes are one document, unless the settings say otherwise."""

LARGE_BLOCK = 16 << 10
"""Characters between blank lines, on average, beyond which they divide chapters or books, and lines are documents."""

BLANK_LINE = re.compile(r"\n[ \t]*\n")
TITLE = r" ?= (?![= ])[^\n]*(?<![= ]) = ?{end}\n[ \t]*{end}\n"
"""A line of WikiText that begins an article, `= Title =`, and the blank one after it; headings have more signs."""
ARTICLE = re.compile(r"(?:\A|\n)[ \t]*\n(?=" + TITLE.format(end="") + ")")
CUTS = {
    "line": re.compile(rb"\n"),
    "block": re.compile(rb"\n[ \t\r]*\n"),
    "article": re.compile(rb"\n[ \t\r]*\n(?=" + TITLE.format(end="\\r?").encode() + b")"),
}
TEXTS = ("text", "wikitext")
"""Formats of plain text, which is cut into documents here."""


@dataclass(frozen=True)
class Piece:
    """What one worker reads in one go, and what was decided about it on the file's first MiB."""

    source: Source
    start: int = 0
    stop: int | None = None
    encoding: Encoding | None = None
    cut: str | None = None
    split: str = ""
    """The split whose own data it belongs to; none where it is of the source."""


def plan(sources: Iterable[Source], settings: CorpusSettings, split: str = "") -> Iterator[Piece]:
    """The pieces of all sources, in order."""
    for source in sources:
        if isinstance(source, File) and source.format in TEXTS and not source.compression and source.size > PIECE:
            yield from (replace(piece, split=split) for piece in _ranges(source, settings))
        else:
            yield Piece(source, split=split)


def plan_held_out(held_out: Mapping[str, Iterable[Source]], settings: CorpusSettings) -> Iterator[Piece]:
    """The pieces of validation and test data of their own, which are read before all others."""
    for split, sources in held_out.items():
        yield from plan(sources, settings, split)


def decide_cut(head: str, size: int, settings: CorpusSettings, file: File) -> str:
    """What one document is in a text that begins so and has at least so many bytes."""
    if settings.document != "auto":
        return settings.document
    if file.format == "wikitext" and ARTICLE.search(head):
        return "article"
    if size < WHOLE_FILE:
        return "file"
    return "block" if len(BLANK_LINE.findall(head)) * LARGE_BLOCK >= len(head) else "line"


def _ranges(file: File, settings: CorpusSettings) -> Iterator[Piece]:
    try:
        head = Stream(file, Account()).head
        encoding = encoding_of(file, head, whole=False)
    except (Unreadable, CutShort):
        yield Piece(file)  # its reader will meet the same, and count it
        return
    text = head.decode(encoding.codec, "replace").replace("\r\n", "\n")
    cut = decide_cut(text, file.size, settings, file)
    if cut == "file" or encoding.codec not in BYTEWISE:
        yield Piece(file, encoding=encoding, cut=cut)
        return
    start = 0
    for stop in (*_stops(file, CUTS[cut]), file.size):
        if stop > start:
            yield Piece(file, start, stop, encoding if start == 0 else Encoding(_without_mark(encoding)), cut)
            start = stop


BYTEWISE = {"utf-8", "utf-8-sig", "gb18030", "cp1252"}
"""Encodings in which a newline is one byte that is never a part of another character."""


def _without_mark(encoding: Encoding) -> str:
    return encoding.codec.removesuffix("-sig")


def _stops(file: File, separator: re.Pattern[bytes]) -> Iterator[int]:
    """Where ranges end: after the first separator beyond each multiple of PIECE."""
    with file.path.open("rb") as handle:
        at = PIECE
        while at < file.size:
            handle.seek(at)
            window = handle.read(1 << 20)
            found = separator.search(window)
            if found:
                yield at + found.end()
                at += found.end() + PIECE
            else:
                at += max(len(window) - 64, 1)  # a separator may lie across two windows
