"""The samples that exist on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from meristem import samples
from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop, cut
from meristem.corpus.pictures import drawn
from meristem.corpus.pieces import Piece
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PAIR, PICTURE, joined
from meristem.corpus.source_kinds import Builtin


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of a sample, by number."""
    builtin = cast(Builtin, piece.source)
    kind = samples.kind(builtin.sample)
    if kind == "text":
        for number, text in enumerate(samples.documents(builtin.sample), start=1):
            yield from cut(text, f"{builtin.name}#{number}")
        return
    for number, (given, told) in enumerate(samples.pairs(builtin.sample), start=1):
        place = f"{builtin.name}#{number}"
        yield joined(given, told, PAIR, place) if kind == "pairs" else joined(drawn(given), told, PICTURE, place)
