"""A piece of the reading becomes batches of cleaned documents: the work that is done in processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from meristem.corpus.account import Account
from meristem.corpus.clean import steps
from meristem.corpus.deduplicate import digest
from meristem.corpus.document import Document, Drop, Step
from meristem.corpus.near import Signatures, signatures
from meristem.corpus.pieces import Piece
from meristem.corpus.readers import read
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import identity
from meristem.corpus.split import uniform

CHARACTERS = 1 << 18
"""A batch is full when its documents have this many characters."""


@dataclass
class Batch:
    """Cleaned documents in columns, which travel between processes faster than objects, with their account."""

    texts: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    """Each document's place in [0, 1), which decides its split."""
    languages: list[str] = field(default_factory=list)
    signatures: Signatures | None = None
    """What near duplicates are found by, where they are asked for."""
    account: Account = field(default_factory=Account)


def batches(piece: Piece, settings: CorpusSettings) -> Iterator[Batch]:
    """Read and clean a piece, a batch at a time; the last one completes its account."""
    line = steps(settings)
    account = Account()  # the reader writes into it too
    batch, characters = Batch(), 0
    for item in read(piece, settings, account):
        account.read += 1
        document = item if isinstance(item, Drop) else cleaned(item, line, account)
        if isinstance(document, Drop):
            account.drop(document.reason)
            if isinstance(item, Document):
                account.show(document.reason, [(item.place, item.text)])
            continue
        batch.texts.append(document.text)
        batch.places.append(document.place)
        batch.languages.append(document.language)
        for what, times in document.notes:
            account.removed[what] += times
        if document.language:
            account.languages[document.language] += 1
        whole, given = identity(document)
        batch.digests.append(digest(whole))
        batch.numbers.append(uniform(batch.digests[-1] if given is whole else digest(given)))
        characters += len(document.text)
        if characters >= CHARACTERS:
            yield _completed(batch, account, settings)
            batch, characters = Batch(), 0
    yield _completed(batch, account, settings)


def _completed(batch: Batch, account: Account, settings: CorpusSettings) -> Batch:
    batch.account = account.take()
    if settings.near is not None:
        batch.signatures = signatures(batch.texts, settings.near.words)
    return batch


def cleaned(document: Document, line: tuple[Step, ...], account: Account) -> Document | Drop:
    """What the steps leave of a document; the changes of each are counted under its name."""
    for step in line:
        after = step(document)
        if isinstance(after, Drop):
            return after
        if after.text is not document.text:
            account.repaired[step.__name__.replace("_", " ")] += 1
        document = after
    return document
