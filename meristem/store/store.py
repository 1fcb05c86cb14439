"""A finished store: opened, verified, and read as one stream of tokens per split."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.store.manifest import Manifest, finished_name
from meristem.store.shards import MIDDLES, PICTURES, WORDS, Shard, file_name

Ints = NDArray[np.int64]


class Span(NamedTuple):
    """A document's place in the stream; its separator is the last token."""

    start: int
    stop: int

    @property
    def text_stop(self) -> int:
        """Where the document's own tokens end and its separator stands."""
        return self.stop - 1


class UnknownTokens(NamedTuple):
    """How much of a stream the tokenizer has no token for."""

    tokens: int
    bytes: int
    """UTF-8 bytes of the text that unknown tokens stand for."""


class Store:
    """A folder of checksummed token shards."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._shards = {
            split: [Shard(folder / split, number, manifest.dtype, record) for number, record in enumerate(records)]
            for split, records in manifest.splits.items() if records
        }

    @classmethod
    def open(cls, folder: Path, *, verify: bool = True, state: str = "") -> Store:
        """Open a finished store, or one of its states; sizes are always compared, contents when `verify` is true."""
        name = finished_name(state)
        if not (folder / name).is_file():
            raise MeristemError(f"{folder}: no finished store here ({name} is missing); run again to build it")
        store = cls(folder, Manifest.load(folder / name))
        for shards in store._shards.values():
            for shard in shards:
                shard.check(contents=verify)
        return store

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that hold any document."""
        return tuple(self._shards)

    def split(self, name: str) -> Stream:
        """One split as a stream."""
        if name not in self._shards:
            raise MeristemError(f"{self.folder}: no document fell into the {name} split, only into "
                                f"{', '.join(self.splits)}; give more text, or a larger share (corpus.{name})")
        return Stream(self._shards[name], tokenizer=self.manifest.tokenizer, place=self.folder / name)


class Stream:
    """A split's tokens end to end, whatever shards they lie in."""

    def __init__(self, shards: Sequence[Shard], *, tokenizer: str, place: Path) -> None:
        self.tokenizer, self.place = tokenizer, place
        self._shards = list(shards)
        self._starts = [0, *accumulate(shard.record.tokens for shard in shards)]
        self._firsts = [0, *accumulate(shard.record.documents for shard in shards)]
        self.documents = self._firsts[-1]
        self.bytes = sum(shard.record.bytes for shard in shards)
        counts = [(shard.record.unknown, shard.record.unknown_bytes) for shard in shards]
        known = [(unknown, size) for unknown, size in counts if unknown is not None and size is not None]
        self.unknown = UnknownTokens(*map(sum, zip(*known, strict=True))) if len(known) == len(counts) else None
        """None where the shards were made before unknown tokens were counted."""

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def unknown_share(self) -> float | None:
        """Unknown tokens among the tokens of documents, separators apart; None where they were not counted."""
        return None if self.unknown is None else self.unknown.tokens / max(1, len(self) - self.documents)

    def tokens(self, start: int, stop: int) -> Ints:
        """The ids from `start` up to `stop`."""
        parts = [shard.tokens[low:high] for shard, _, low, high in self._pieces(start, stop)]
        return np.concatenate(parts, dtype=np.int64) if parts else np.zeros(0, np.int64)

    def sentences(self, start: int, stop: int) -> Ints:
        """The positions from `start` up to `stop` where a sentence begins."""
        found = []
        for shard, base, low, high in self._pieces(start, stop):
            # both ends as the index's own type: any other would make numpy convert the whole index first
            first, last = shard.sentences.searchsorted(np.array((low, high), np.uint32))
            found.append(shard.sentences[first:last].astype(np.int64) + base)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def sentence_before(self, position: int) -> int:
        """Where the sentence that holds a position begins."""
        number = self._shard_at(position)
        base, sentences = self._starts[number], self._shards[number].sentences
        return base + int(sentences[sentences.searchsorted(np.uint32(position - base), side="right") - 1])

    @property
    def spelled(self) -> bool:
        """Whether the store kept how each token was written."""
        return all(file_name(shard.number, WORDS) in shard.record.files for shard in self._shards)

    def spellings(self, start: int, stop: int) -> list[bytes]:
        """The bytes each token was written with; only word stores keep them."""
        return [word for shard, _, low, high in self._pieces(start, stop) for word in shard.spellings(low, high)]

    def document(self, number: int) -> Span:
        """Where a document lies."""
        shard, inside = self._document(number)
        start, stop = self._shards[shard].documents[inside:][:2].tolist()
        return Span(self._starts[shard] + start, self._starts[shard] + stop)

    @property
    def paired(self) -> bool:
        """Whether every document is a source and its target."""
        return all(shard.holds(MIDDLES) for shard in self._shards)

    @property
    def pictured(self) -> bool:
        """Whether every document tells of a picture."""
        return all(shard.holds(PICTURES) for shard in self._shards)

    def middle(self, number: int) -> int:
        """Where the target of a pair begins."""
        shard, inside = self._document(number)
        return self._starts[shard] + int(self._shards[shard].middles[inside])

    def picture(self, number: int) -> NDArray[np.uint8]:
        """A document's picture, [side, side, 3]."""
        shard, inside = self._document(number)
        return np.array(self._shards[shard].pictures[inside])

    def _document(self, number: int) -> tuple[int, int]:
        """The shard of a document, and its place in it."""
        if not 0 <= number < self.documents:
            raise IndexError(f"documents run from 0 to {self.documents - 1}, not {number}")
        shard = bisect_right(self._firsts, number) - 1
        return shard, number - self._firsts[shard]

    def document_at(self, position: int) -> int:
        """Which document a position belongs to."""
        number = self._shard_at(position)
        inside = self._shards[number].documents.searchsorted(position - self._starts[number], side="right") - 1
        return self._firsts[number] + int(inside)

    def documents_at(self, start: int, stop: int) -> Ints:
        """For each position from `start` up to `stop` the number of its document, the first counted 0."""
        begins = np.zeros(stop - start, np.int64)
        for shard, base, low, high in self._pieces(start, stop):
            first, last = shard.documents.searchsorted((low, high))
            begins[shard.documents[first:last] + (base - start)] = 1
        begins[:1] = 0
        return np.cumsum(begins)

    def lengths(self, first: int, last: int) -> Ints:
        """Tokens of the documents from `first` up to `last`, separators left out."""
        parts = []
        while first < last:
            number = bisect_right(self._firsts, first) - 1
            base, end = self._firsts[number], min(last, self._firsts[number + 1])
            starts = self._shards[number].documents[first - base : end - base + 1]
            parts.append(starts[1:] - starts[:-1] - 1)
            first = end
        return np.concatenate(parts)

    def _shard_at(self, position: int) -> int:
        if not 0 <= position < len(self):
            raise IndexError(f"the stream runs from 0 to {len(self) - 1}, not {position}")
        return bisect_right(self._starts, position) - 1

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Shard, int, int, int]]:
        """The shards a stretch crosses, each with its base and the stretch inside it."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"{start}:{stop} reaches outside the {len(self):,} tokens of {self.place}")
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            base, end = self._starts[number], min(stop, self._starts[number + 1])
            yield self._shards[number], base, start - base, end - base
            start, number = end, number + 1
