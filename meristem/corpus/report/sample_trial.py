"""Tries settings that are off on a sample of the kept documents, as the basis for the report's advice."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.clean.cleaning import cleaning_steps
from meristem.corpus.clean.language_id import identify_language
from meristem.corpus.dedup.lsh_index import LSHIndex
from meristem.corpus.dedup.minhash import MinHashSettings, minhash_signatures
from meristem.corpus.document import Document, Drop
from meristem.corpus.document_batches import apply_steps
from meristem.corpus.paired_text import IMAGE_SEPARATOR, split_pair
from meristem.corpus.report.planted_continuations import ContinuationCounter, PlantedContinuation
from meristem.corpus.report.repeated_lines import candidate_lines, prune_counts
from meristem.corpus.settings import CorpusSettings

NEEDED_MODULES = {"languages and quality": "py3langid", "personal data": "stdnum"}
"""What is measured only if a module of the extra `clean` is installed."""

SAMPLE_DOCUMENTS, SAMPLE_CHARS = 1000, 3000
"""Documents in a sample, and characters of each."""

KEY_CHARS = 1000
"""Characters from which a document's sampling key is computed."""

MAX_REPEATED_LINES = 20
"""Maximum number of repeated lines reported."""

MIN_LINE_DOCUMENTS = 3
"""Minimum number of documents a repeated line occurs in."""

MOJIBAKE_SIGNS = ("â€", "Ã©", "Ã¼", "Ã¶", "Ã¤", "Ã¨", "ã€", "ï¼", "ï¿½")
"""Quotes, accents and Chinese commas that were decoded wrongly."""


@dataclass(kw_only=True)
class SettingTrial:
    """The effect of turning one setting on, measured on the sample."""

    affected: int = 0
    """Documents that would be dropped or changed."""
    dropped: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)


@dataclass(kw_only=True)
class SampleFindings:
    """Measurements on the samples."""

    documents: int = 0
    """Size of the sample; trials of settings that are already on are empty."""
    languages: Counter[str] = field(default_factory=Counter)
    quality: SettingTrial = field(default_factory=SettingTrial)
    boilerplate: SettingTrial = field(default_factory=SettingTrial)
    private: SettingTrial = field(default_factory=SettingTrial)
    garbled: int = 0
    """Documents with mojibake."""
    compared: int = 0
    """Documents of a second sample, chosen so that documents with a common sentence are chosen together."""
    alike: int = 0
    """Near duplicates among them."""
    planted_continuations: Sequence[PlantedContinuation] = ()
    """Found in all documents, not only in the sample (for the limits see `planted_continuations.py`)."""
    not_tried: tuple[str, ...] = ()
    """What was not measured, because a library of the extra `clean` is missing."""


class BottomKSample:
    """The documents with the smallest keys (bottom-k sampling), whatever their order."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def offer(self, key: int, text: str) -> None:
        """Add a document if its key is small enough."""
        if len(self._heap) < SAMPLE_DOCUMENTS:
            heappush(self._heap, (-key, text[:SAMPLE_CHARS]))
        elif -key >= self._heap[0][0]:
            heappushpop(self._heap, (-key, text[:SAMPLE_CHARS]))

    @property
    def texts(self) -> list[str]:
        """The sampled texts, in an order that depends only on them."""
        return [text for _, text in sorted(self._heap, reverse=True)]


class CorpusSampler:
    """Observes the kept documents: counts repeated lines and sequences, and draws two samples."""

    def __init__(self, settings: CorpusSettings) -> None:
        self.settings = settings
        self._line_counts: Counter[str] = Counter()
        self._continuations = ContinuationCounter()
        self._random_sample, self._similar_sample = BottomKSample(), BottomKSample()

    def observe(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yields the documents unchanged."""
        for document in documents:
            text = split_pair(document.text).target if self.settings.side_separator else document.text
            self._line_counts = prune_counts(self._line_counts)
            self._line_counts.update(candidate_lines(text))
            self._continuations.add(text, document.location)
            beginning = text[:KEY_CHARS]
            self._random_sample.offer(zlib.crc32(beginning.encode()), text)
            if self.settings.near_dedup is None and self.settings.side_separator != IMAGE_SEPARATOR:
                self._similar_sample.offer(sentence_key(beginning), text)
            yield document

    @property
    def repeated_lines(self) -> Counter[str]:
        """The lines that occur in the most documents."""
        top_lines = self._line_counts.most_common(MAX_REPEATED_LINES)
        return Counter({line: count for line, count in top_lines if count >= MIN_LINE_DOCUMENTS})

    def findings(self) -> SampleFindings:
        """Measure both samples."""
        texts, similar_texts, settings = self._random_sample.texts, self._similar_sample.texts, self.settings
        not_tried = tuple(name for name, module in NEEDED_MODULES.items() if find_spec(module) is None)
        has_language_id, has_checks = (name not in not_tried for name in NEEDED_MODULES)
        tries_quality = has_language_id and not settings.quality and not settings.side_separator
        return SampleFindings(
            documents=len(texts),
            languages=Counter(identify_language(text).language for text in texts) if has_language_id else Counter(),
            quality=try_settings(texts, quality=True) if tries_quality else SettingTrial(),
            boilerplate=SettingTrial() if settings.boilerplate else try_settings(texts, boilerplate=True),
            private=SettingTrial() if settings.pii or not has_checks else try_settings(texts, pii=True),
            garbled=sum(any(sign in text for sign in MOJIBAKE_SIGNS) for text in texts),
            compared=len(similar_texts),
            alike=count_near_duplicates(similar_texts),
            planted_continuations=self._continuations.find(),
            not_tried=not_tried,
        )


def sentence_key(text: str) -> int:
    """The smallest checksum of a sentence: texts that share most of their sentences mostly share it (MinHash)."""
    sentences = text.replace("\n", ".").replace("。", ".").split(".")
    return min(
        (zlib.crc32(sentence.encode()) for sentence in sentences if len(sentence) > 11),
        default=zlib.crc32(text.encode()),
    )


def try_settings(texts: Sequence[str], **overrides: Any) -> SettingTrial:
    """Clean texts that are already clean, with one more setting turned on."""
    steps = cleaning_steps(CorpusSettings(**overrides))
    account, trial = CorpusAccount(), SettingTrial()
    for text in texts:
        result = apply_steps(Document(text, "sample"), steps, account)
        if isinstance(result, Drop):
            trial.dropped[result.reason] += 1
        else:
            trial.removed.update(dict(result.notes))
        trial.affected += isinstance(result, Drop) or bool(result.notes)
    return trial


def count_near_duplicates(texts: Sequence[str]) -> int:
    """How many texts are near duplicates of an earlier one."""
    if not texts:
        return 0
    with TemporaryDirectory() as folder:
        index = LSHIndex(MinHashSettings(), Path(folder))
        num_duplicates = int((index.query_and_add(minhash_signatures(texts)) >= 0).sum())
        index.close()
    return num_duplicates
