"""Which documents are held out: by a hash of their text, so that a growing corpus moves none of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, NamedTuple

from meristem import bounded
from meristem.corpus.document import Document
from meristem.corpus.settings import CorpusSettings

SMALL = 1000
"""Up to this many documents are dealt out by exact quotas: a hash would leave a small corpus without validation."""

SPOOL = 32 << 20
"""Characters of waiting documents held in memory; beyond it they wait on disk."""


def uniform(digest: bytes) -> float:
    """A number in [0, 1) from a text's digest."""
    return (int.from_bytes(digest[:8], "little") >> 11) / 2**53


def position(digest: bytes) -> float:
    """Another number in [0, 1) from a text's digest, which has no part in its split: what a share is chosen by."""
    return uniform(digest[8:])


def half(number: float) -> int:
    """The half that a document is in: its number's last bit, which has no part in its split."""
    return int(number * 2**53) & 1


def by_hash(number: float, settings: CorpusSettings) -> str:
    """The split of a document in a large corpus, whatever else is in it."""
    validation, test = settings.shares
    if number < test:
        return "test"
    return "validation" if number < test + validation else "train"


def by_quota(numbers: Sequence[float], settings: CorpusSettings) -> list[str]:
    """The splits of a small corpus: exact shares, at least one of each while something is left to train on.

    Quotas count different numbers, so that two documents with the same text are never in two splits.
    """
    ranked = sorted(set(numbers))
    left = max(len(ranked) - 1, 0)
    shares = settings.shares
    validation = min(max(round(shares.validation * len(ranked)), shares.validation > 0), left)
    test = min(max(round(shares.test * len(ranked)), shares.test > 0), left - validation)
    names = ["test"] * test + ["validation"] * validation + ["train"] * (len(ranked) - test - validation)
    split = dict(zip(ranked, names, strict=True))
    return [split[number] for number in numbers]


class Undecided(NamedTuple):
    """A document before its split is known."""

    text: str
    place: str
    number: float
    """Its place in [0, 1), from the text alone or from the first text that it is near to."""
    language: str = ""
    split: str = ""
    """Its split, where it comes from data of that split's own; such documents come before all others."""


def assign(documents: Iterable[Undecided], settings: CorpusSettings) -> Iterator[Document]:
    """The documents in the same order, each with its split; up to SMALL of them wait until it is known if more come."""
    source = iter(documents)
    with SpooledTemporaryFile(max_size=SPOOL, mode="w+", encoding="utf-8") as waiting:
        numbers = []
        for document in source:
            if document.split:
                yield Document(document.text, document.place, document.split, language=document.language)
                continue
            waiting.write(bounded.to_json([document.text, document.place, document.language]) + "\n")
            numbers.append(document.number)
            if len(numbers) > SMALL:
                break
        many = len(numbers) > SMALL
        splits = [by_hash(number, settings) for number in numbers] if many else by_quota(numbers, settings)
        yield from _released(waiting, splits)
    for document in source:
        split = by_hash(document.number, settings)
        yield Document(document.text, document.place, split, language=document.language)


def _released(waiting: IO[str], splits: Sequence[str]) -> Iterator[Document]:
    waiting.seek(0)
    for line, split in zip(waiting, splits, strict=True):
        text, place, language = json.loads(line)
        yield Document(text, place, split, language=language)
