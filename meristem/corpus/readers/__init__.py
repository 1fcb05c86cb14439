"""One reader per format; each gives documents, and drops where a document could not be made out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from meristem.corpus.account import Account
from meristem.corpus.compression import CutShort
from meristem.corpus.document import Document, Drop
from meristem.corpus.opening import Unreadable
from meristem.corpus.pieces import Piece
from meristem.corpus.settings import CorpusSettings

Reader = Callable[[Piece, CorpusSettings, Account], Iterator[Document | Drop]]


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """Everything in a piece; a file that cannot be read is a counted rejection, one that breaks off a counted drop."""
    reader: Reader = import_module(f"meristem.corpus.readers.{piece.source.format}").read
    anything = piece.start > 0 or piece.stop is not None  # a range of a file may well hold nothing
    try:
        for item in reader(piece, settings, account):
            anything = True
            yield item
        if not anything:
            account.reject("no text in it", piece.source.name)
    except Unreadable as error:
        account.reject(str(error), piece.source.name)
    except CutShort as error:
        account.warn(f"{piece.source.name}: {error}; the documents before the break are kept")
        yield Drop(str(error))
