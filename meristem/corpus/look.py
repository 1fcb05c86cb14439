"""A look at what passes: a sample is tried with what the settings leave off, so that a report can advise."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from meristem.corpus.account import Account
from meristem.corpus.batches import cleaned
from meristem.corpus.clean import steps
from meristem.corpus.document import Document, Drop
from meristem.corpus.languages import identify
from meristem.corpus.near import NearSettings, signatures
from meristem.corpus.near_index import Near
from meristem.corpus.passages import passages, pruned
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PICTURE, sides

SAMPLE, SEEN = 1000, 3000
"""Documents that are looked at, and characters of each."""

BEGINNING = 1000
"""Characters by which documents are chosen."""

SHOWN = 20
"""Repeated passages that are told."""

REPEATED = 3
"""Documents a line must stand in to be one."""

GARBLED = ("â€", "Ã©", "Ã¼", "Ã¶", "Ã¤", "Ã¨", "ã€", "ï¼", "ï¿½")
"""What is left of quotes, accents and Chinese commas that were decoded wrongly."""


@dataclass(kw_only=True)
class Trial:
    """What one setting, switched on, would do to the sample."""

    affected: int = 0
    """Documents that would be dropped or changed."""
    dropped: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)


@dataclass(kw_only=True)
class Looked:
    """What the sample holds."""

    documents: int = 0
    """Its size; the trials of settings that are on already are empty."""
    languages: Counter[str] = field(default_factory=Counter)
    quality: Trial = field(default_factory=Trial)
    boilerplate: Trial = field(default_factory=Trial)
    private: Trial = field(default_factory=Trial)
    garbled: int = 0
    """Documents with signs of a wrong decoding."""
    compared: int = 0
    """Documents of a second sample, chosen so that documents with a sentence in common come together."""
    alike: int = 0
    """Those of them that are nearly the same as another."""


class Sample:
    """The documents with the smallest keys, whatever the order they come in."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def offer(self, key: int, text: str) -> None:
        """Take a document, if its key is small enough."""
        if len(self._heap) < SAMPLE:
            heappush(self._heap, (-key, text[:SEEN]))
        elif -key >= self._heap[0][0]:
            heappushpop(self._heap, (-key, text[:SEEN]))

    @property
    def texts(self) -> list[str]:
        """What was taken, in an order of its own."""
        return [text for _, text in sorted(self._heap, reverse=True)]


class Look:
    """Sees the kept documents pass: counts repeated lines, and keeps two samples."""

    def __init__(self, settings: CorpusSettings) -> None:
        self.settings = settings
        self._lines: Counter[str] = Counter()
        self._any, self._kin = Sample(), Sample()

    def watched(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents, each seen."""
        for document in documents:
            text = sides(document.text).told if self.settings.mark else document.text
            self._lines = pruned(self._lines)
            self._lines.update(passages(text))
            beginning = text[:BEGINNING]
            self._any.offer(zlib.crc32(beginning.encode()), text)
            if self.settings.near is None and self.settings.mark != PICTURE:
                self._kin.offer(kinship(beginning), text)
            yield document

    @property
    def passages(self) -> Counter[str]:
        """The lines that stand in the most documents."""
        return Counter({line: n for line, n in self._lines.most_common(SHOWN) if n >= REPEATED})

    def found(self) -> Looked:
        """What the samples hold."""
        texts, kin, settings = self._any.texts, self._kin.texts, self.settings
        return Looked(
            documents=len(texts),
            languages=Counter(identify(text).language for text in texts),
            quality=Trial() if settings.quality or settings.mark else tried(texts, quality=True),
            boilerplate=Trial() if settings.boilerplate else tried(texts, boilerplate=True),
            private=Trial() if settings.private else tried(texts, private=True),
            garbled=sum(any(sign in text for sign in GARBLED) for text in texts),
            compared=len(kin),
            alike=alike(kin),
        )


def kinship(text: str) -> int:
    """The smallest checksum of a sentence: texts that share most of their sentences mostly share it."""
    sentences = text.replace("\n", ".").replace("。", ".").split(".")
    return min((zlib.crc32(part.encode()) for part in sentences if len(part) > 11), default=zlib.crc32(text.encode()))


def tried(texts: Sequence[str], **switched: Any) -> Trial:
    """The cleaning of texts that are clean already, with one thing more switched on."""
    line = steps(CorpusSettings(**switched))
    account, trial = Account(), Trial()
    for text in texts:
        after = cleaned(Document(text, "sample"), line, account)
        if isinstance(after, Drop):
            trial.dropped[after.reason] += 1
        else:
            trial.removed.update(dict(after.notes))
        trial.affected += isinstance(after, Drop) or bool(after.notes)
    return trial


def alike(texts: Sequence[str]) -> int:
    """How many texts are nearly the same as an earlier one."""
    if not texts:
        return 0
    with TemporaryDirectory() as folder:
        index = Near(NearSettings(), Path(folder))
        found = int((index.meet(signatures(texts)) >= 0).sum())
        index.close()
    return found
