"""Train, validation and test splits by a hash of the text, so that adding documents moves no other document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, NamedTuple

from meristem.corpus.document import Document
from meristem.corpus.settings import CorpusSettings
from meristem.utils import untrusted_files

MAX_QUOTA_DOCUMENTS = 1000
"""Up to this many documents are split by exact quotas: a hash could leave a small corpus without validation."""

SPOOL_CHARS = 32 << 20
"""Characters of pending documents kept in memory; more are spooled to disk."""


def digest_to_uniform(digest: bytes) -> float:
    """A number in [0, 1) from a text's digest."""
    return (int.from_bytes(digest[:8], "little") >> 11) / 2**53


def share_position(digest: bytes) -> float:
    """Another number in [0, 1) from a text's digest, independent of its split; used to select a share of the corpus."""
    return digest_to_uniform(digest[8:])


def document_half(number: float) -> int:
    """The half (0 or 1) of a document: the last bit of its number, independent of its split."""
    return int(number * 2**53) & 1


def split_by_hash(number: float, settings: CorpusSettings) -> str:
    """The split of a document in a large corpus, independent of all other documents."""
    validation, test = settings.held_out_shares
    if number < test:
        return "test"
    return "validation" if number < test + validation else "train"


def split_by_quota(numbers: Sequence[float], settings: CorpusSettings) -> list[str]:
    """The splits of a small corpus: exact shares, at least one document each as long as some are left for training.

    Quotas count distinct numbers, so that two documents with the same text are never in different splits.
    """
    ranked = sorted(set(numbers))
    available = max(len(ranked) - 1, 0)
    shares = settings.held_out_shares
    validation = min(max(round(shares.validation * len(ranked)), shares.validation > 0), available)
    test = min(max(round(shares.test * len(ranked)), shares.test > 0), available - validation)
    names = ["test"] * test + ["validation"] * validation + ["train"] * (len(ranked) - test - validation)
    split = dict(zip(ranked, names, strict=True))
    return [split[number] for number in numbers]


class UnsplitDocument(NamedTuple):
    """A document before its split is known."""

    text: str
    location: str
    number: float
    """A number in [0, 1) from a hash of its text, or of the first text it is a near duplicate of."""
    language: str = ""
    split: str = ""
    """Its split, if it comes from separate held-out data; such documents come before all others."""


def assign_splits(documents: Iterable[UnsplitDocument], settings: CorpusSettings) -> Iterator[Document]:
    """The documents in order with their splits; the first MAX_QUOTA_DOCUMENTS wait until the number is known."""
    source = iter(documents)
    with SpooledTemporaryFile(max_size=SPOOL_CHARS, mode="w+", encoding="utf-8") as spool:
        numbers = []
        for document in source:
            if document.split:
                yield Document(document.text, document.location, document.split, language=document.language)
                continue
            spool.write(untrusted_files.to_json([document.text, document.location, document.language]) + "\n")
            numbers.append(document.number)
            if len(numbers) > MAX_QUOTA_DOCUMENTS:
                break
        is_large = len(numbers) > MAX_QUOTA_DOCUMENTS
        splits = (
            [split_by_hash(number, settings) for number in numbers] if is_large else split_by_quota(numbers, settings)
        )
        yield from _read_spooled(spool, splits)
    for document in source:
        split = split_by_hash(document.number, settings)
        yield Document(document.text, document.location, split, language=document.language)


def _read_spooled(spool: IO[str], splits: Sequence[str]) -> Iterator[Document]:
    spool.seek(0)
    for line, split in zip(spool, splits, strict=True):
        text, location, language = json.loads(line)
        yield Document(text, location, split, language=language)
