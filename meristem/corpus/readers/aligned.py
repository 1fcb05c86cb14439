"""Two files of lines, the n-th of one belonging to the n-th of the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import cast

from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop
from meristem.corpus.encoding import decoded
from meristem.corpus.opening import Stream
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.lines import numbered
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PAIR, joined
from meristem.corpus.source_kinds import Aligned, File
from meristem.errors import MeristemError

MISSING = object()


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """One document per pair of lines; files of unequal length are refused, with the lines each has."""
    files = cast(Aligned, piece.source)
    lines = [0, 0]
    for ours, theirs in zip_longest(_lines(files.source, account), _lines(files.target, account), fillvalue=MISSING):
        lines = [number + (side is not MISSING) for number, side in zip(lines, (ours, theirs), strict=True)]
        if lines[0] != lines[1]:
            continue  # the rest is only counted
        if isinstance(ours, str) and isinstance(theirs, str):
            yield joined(ours, theirs, PAIR, f"{files.name}:{lines[0]}")
        else:
            account.warn(f"{files.name}:{lines[0]}: line too long")
            yield Drop("line too long")
    if lines[0] != lines[1]:
        raise MeristemError(
            f"{files.source.name} has {lines[0]:,} lines and {files.target.name} has {lines[1]:,}: "
            "corpus.target wants a line for each line of the source"
        )


def _lines(file: File, account: Account) -> Iterator[object]:
    return (line for _, line in numbered(decoded(Stream(file, account), account)))
