"""The reading cut into pieces that can be worked on apart: a file, a range of a large text file, a sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from meristem.corpus.account import Account
from meristem.corpus.compression import CutShort
from meristem.corpus.encoding import Encoding, recognise
from meristem.corpus.opening import Stream, Unreadable
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sources import File, Source

PIECE = 4 << 20
"""Bytes of a range of a large text file; whatever the number of processes, so that the result is the same."""

WHOLE_FILE = 64 << 10
"""Text files below this many bytes are one document, unless the settings say otherwise."""

LARGE_BLOCK = 16 << 10
"""Characters between blank lines, on average, beyond which they divide chapters or books, and lines are documents."""

BLANK_LINE = re.compile(r"\n[ \t]*\n")
CUTS = {"line": re.compile(rb"\n"), "block": re.compile(rb"\n[ \t\r]*\n")}


@dataclass(frozen=True)
class Piece:
    """What one worker reads in one go, and what was decided about it on the file's first MiB."""

    source: Source
    start: int = 0
    stop: int | None = None
    encoding: Encoding | None = None
    cut: str | None = None


def plan(sources: Iterable[Source], settings: CorpusSettings) -> Iterator[Piece]:
    """The pieces of all sources, in order."""
    for source in sources:
        if isinstance(source, File) and source.format == "text" and not source.compression and source.size > PIECE:
            yield from _ranges(source, settings)
        else:
            yield Piece(source)


def decide_cut(head: str, size: int, settings: CorpusSettings) -> str:
    """What one document is in a text that begins so and has at least so many bytes."""
    if settings.document != "auto":
        return settings.document
    if size < WHOLE_FILE:
        return "file"
    return "block" if len(BLANK_LINE.findall(head)) * LARGE_BLOCK >= len(head) else "line"


def _ranges(file: File, settings: CorpusSettings) -> Iterator[Piece]:
    try:
        head = Stream(file, Account()).head
        encoding = recognise(head, file.ending, whole=False)
    except (Unreadable, CutShort):
        yield Piece(file)  # its reader will meet the same, and count it
        return
    text = head.decode(encoding.codec, "replace").replace("\r\n", "\n")
    cut = decide_cut(text, file.size, settings)
    if cut == "file" or encoding.codec in {"utf-16", "utf-32"}:
        yield Piece(file, encoding=encoding, cut=cut)
        return
    start = 0
    for stop in (*_stops(file, CUTS[cut]), file.size):
        if stop > start:
            yield Piece(file, start, stop, encoding if start == 0 else Encoding(_without_mark(encoding)), cut)
            start = stop


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
