"""Reads and cleans a range of the corpus into batches of documents: the work of the worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.clean.cleaning import cleaning_steps
from meristem.corpus.dedup.exact import text_digest
from meristem.corpus.dedup.minhash import Signatures, minhash_signatures
from meristem.corpus.document import CleaningStep, Document, Drop
from meristem.corpus.paired_text import document_keys
from meristem.corpus.read_documents import read_documents
from meristem.corpus.read_ranges import ReadRange
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.split import digest_to_uniform

BATCH_CHARACTERS = 1 << 18
"""A batch is full when its documents have this many characters."""


@dataclass
class DocumentBatch:
    """Cleaned documents as columns, which are faster to send between processes than objects, with their counts."""

    texts: list[str] = field(default_factory=list)
    locations: list[str] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    split_numbers: list[float] = field(default_factory=list)
    """A number in [0, 1) per document, which decides its split."""
    languages: list[str] = field(default_factory=list)
    signatures: Signatures | None = None
    """MinHash signatures [documents, NUM_HASHES], if near-duplicate removal is on."""
    account: CorpusAccount = field(default_factory=CorpusAccount)


def read_batches(read_range: ReadRange, settings: CorpusSettings) -> Iterator[DocumentBatch]:
    """Read and clean a range, one batch at a time; the counts are complete after the last batch."""
    steps = cleaning_steps(settings)
    account = CorpusAccount()  # the reader counts into it too
    batch, characters = DocumentBatch(), 0
    for item in read_documents(read_range, settings, account):
        account.read += 1
        document = item if isinstance(item, Drop) else apply_steps(item, steps, account)
        if isinstance(document, Drop):
            account.drop(document.reason)
            if isinstance(item, Document):
                account.add_examples(document.reason, [(item.location, item.text)])
            continue
        batch.texts.append(document.text)
        batch.locations.append(document.location)
        batch.languages.append(document.language)
        for kind, occurrences in document.notes:
            account.removed[kind] += occurrences
        if document.language:
            account.languages[document.language] += 1
        dedup_text, split_text = document_keys(document)
        batch.digests.append(text_digest(dedup_text))
        batch.split_numbers.append(
            digest_to_uniform(batch.digests[-1] if split_text is dedup_text else text_digest(split_text))
        )
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS:
            yield _finish_batch(batch, account, settings)
            batch, characters = DocumentBatch(), 0
    yield _finish_batch(batch, account, settings)


def _finish_batch(batch: DocumentBatch, account: CorpusAccount, settings: CorpusSettings) -> DocumentBatch:
    batch.account = account.pop_counts()
    if settings.near_dedup is not None:
        batch.signatures = minhash_signatures(batch.texts, settings.near_dedup.words)
    return batch


def apply_steps(document: Document, steps: tuple[CleaningStep, ...], account: CorpusAccount) -> Document | Drop:
    """The document after all steps, or a drop; changes are counted under the name of the step."""
    for step in steps:
        result = step(document)
        if isinstance(result, Drop):
            return result
        if result.text is not document.text:
            account.repaired[step.__name__.replace("_", " ")] += 1
        document = result
    return document
