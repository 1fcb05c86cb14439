"""Reader for pairs of line-aligned text files (parallel corpora): line n of one belongs to line n of the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import cast

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop
from meristem.corpus.paired_text import PAIR_SEPARATOR, join_pair
from meristem.corpus.read.byte_stream import ByteStream
from meristem.corpus.read.encoding import decode_stream
from meristem.corpus.read.formats.lines import number_lines
from meristem.corpus.read.read_ranges import ReadRange
from meristem.corpus.read.source_kinds import AlignedSource, FileSource
from meristem.corpus.settings import CorpusSettings

NO_LINE = object()


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """One document per pair of lines; files with different numbers of lines are rejected."""
    files = cast(AlignedSource, read_range.source)
    lines = [0, 0]
    for source_line, target_line in zip_longest(
        _lines(files.source, account), _lines(files.target, account), fillvalue=NO_LINE
    ):
        lines = [number + (line is not NO_LINE) for number, line in zip(lines, (source_line, target_line), strict=True)]
        if lines[0] != lines[1]:
            continue  # the rest is only counted
        if isinstance(source_line, str) and isinstance(target_line, str):
            yield join_pair(source_line, target_line, PAIR_SEPARATOR, f"{files.name}:{lines[0]}")
        else:
            account.warn(f"{files.name}:{lines[0]}: line too long")
            yield Drop("line too long")
    if lines[0] != lines[1]:
        raise MeristemError(
            f"{files.source.name} has {lines[0]:,} lines and {files.target.name} has {lines[1]:,}: "
            "corpus.target needs one line for each line of the source"
        )


def _lines(file: FileSource, account: CorpusAccount) -> Iterator[object]:
    return (line for _, line in number_lines(decode_stream(ByteStream(file, account), account)))
