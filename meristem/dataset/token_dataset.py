"""A tokenized dataset: opened, verified, and read as one stream of token ids per split."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.dataset.manifest import DatasetManifest, manifest_name
from meristem.dataset.shard import IMAGES, SPELLING_IDS, TARGET_STARTS, Shard, file_name

IntArray = NDArray[np.int64]


class DocumentSpan(NamedTuple):
    """Positions of a document in the stream; its last token is the separator."""

    start: int
    stop: int

    @property
    def text_stop(self) -> int:
        """End of the document's own tokens, which is the position of its separator."""
        return self.stop - 1


class UnknownTokens(NamedTuple):
    """Unknown tokens of a stream."""

    tokens: int
    bytes: int
    """UTF-8 bytes of the text that unknown tokens cover."""


class TokenDataset:
    """A folder of checksummed token shards."""

    def __init__(self, folder: Path, manifest: DatasetManifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._shards = {
            split: [Shard(folder / split, number, manifest.dtype, record) for number, record in enumerate(records)]
            for split, records in manifest.splits.items()
            if records
        }

    @classmethod
    def open(cls, folder: Path, *, verify: bool = True, state: str = "") -> TokenDataset:
        """Open a complete dataset, or one of its states; checks file sizes, and checksums if `verify`."""
        name = manifest_name(state)
        if not (folder / name).is_file():
            raise MeristemError(f"{folder}: no complete dataset here ({name} is missing); run again to build it")
        dataset = cls(folder, DatasetManifest.load(folder / name))
        for shards in dataset._shards.values():
            for shard in shards:
                shard.check(contents=verify)
        return dataset

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have documents."""
        return tuple(self._shards)

    def split(self, name: str) -> TokenStream:
        """One split as a stream."""
        if name not in self._shards:
            raise MeristemError(
                f"{self.folder}: the {name} split has no documents; there are only "
                f"{', '.join(self.splits)}; add more text, or raise its share (corpus.{name})"
            )
        return TokenStream(self._shards[name], tokenizer=self.manifest.tokenizer, path=self.folder / name)


class TokenStream:
    """A split's tokens as one sequence across its shards."""

    def __init__(self, shards: Sequence[Shard], *, tokenizer: str, path: Path) -> None:
        self.tokenizer, self.path = tokenizer, path
        self._shards = list(shards)
        self._starts = [0, *accumulate(shard.record.tokens for shard in shards)]
        self._first_documents = [0, *accumulate(shard.record.documents for shard in shards)]
        self.documents = self._first_documents[-1]
        self.bytes = sum(shard.record.bytes for shard in shards)
        counts = [(shard.record.unknown, shard.record.unknown_bytes) for shard in shards]
        unknown_counts = [(unknown, size) for unknown, size in counts if unknown is not None and size is not None]
        self.unknown = (
            UnknownTokens(*map(sum, zip(*unknown_counts, strict=True))) if len(unknown_counts) == len(counts) else None
        )
        """None if the shards were written before unknown tokens were counted."""

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def unknown_share(self) -> float | None:
        """Share of unknown tokens, separators not counted; None if they were not counted."""
        return None if self.unknown is None else self.unknown.tokens / max(1, len(self) - self.documents)

    def tokens(self, start: int, stop: int) -> IntArray:
        """The token ids in [start, stop)."""
        chunks = [shard.tokens[low:high] for shard, _, low, high in self._shard_slices(start, stop)]
        return np.concatenate(chunks, dtype=np.int64) if chunks else np.zeros(0, np.int64)

    def sentences(self, start: int, stop: int) -> IntArray:
        """The positions in [start, stop) where a sentence begins."""
        chunks = []
        for shard, base, low, high in self._shard_slices(start, stop):
            # bounds in the index's own dtype: with any other, numpy first converts the whole index
            first, last = shard.sentences.searchsorted(np.array((low, high), np.uint32))
            chunks.append(shard.sentences[first:last].astype(np.int64) + base)
        return np.concatenate(chunks) if chunks else np.zeros(0, np.int64)

    def sentence_start_at(self, position: int) -> int:
        """The start of the sentence that contains a position."""
        number = self._shard_at(position)
        base, sentences = self._starts[number], self._shards[number].sentences
        return base + int(sentences[sentences.searchsorted(np.uint32(position - base), side="right") - 1])

    @property
    def has_spellings(self) -> bool:
        """Whether the dataset kept the spelling of each token."""
        return all(file_name(shard.number, SPELLING_IDS) in shard.record.files for shard in self._shards)

    def spellings(self, start: int, stop: int) -> list[bytes]:
        """The bytes of text behind each token; only word-level datasets keep them."""
        return [word for shard, _, low, high in self._shard_slices(start, stop) for word in shard.spellings(low, high)]

    def document(self, number: int) -> DocumentSpan:
        """The positions of a document."""
        shard, index = self._locate_document(number)
        start, stop = self._shards[shard].documents[index:][:2].tolist()
        return DocumentSpan(self._starts[shard] + start, self._starts[shard] + stop)

    @property
    def has_pairs(self) -> bool:
        """Whether every document is a pair of source and target."""
        return all(shard.has_file(TARGET_STARTS) for shard in self._shards)

    @property
    def has_images(self) -> bool:
        """Whether every document has an image."""
        return all(shard.has_file(IMAGES) for shard in self._shards)

    def target_start(self, number: int) -> int:
        """The position where the target of a pair begins."""
        shard, index = self._locate_document(number)
        return self._starts[shard] + int(self._shards[shard].target_starts[index])

    def image(self, number: int) -> NDArray[np.uint8]:
        """A document's image, [side, side, 3]."""
        shard, index = self._locate_document(number)
        return np.array(self._shards[shard].images[index])

    def _locate_document(self, number: int) -> tuple[int, int]:
        """The shard of a document, and its index in the shard."""
        if not 0 <= number < self.documents:
            raise IndexError(f"document {number} is out of range; there are {self.documents:,}")
        shard = bisect_right(self._first_documents, number) - 1
        return shard, number - self._first_documents[shard]

    def document_at(self, position: int) -> int:
        """The document that a position belongs to."""
        number = self._shard_at(position)
        index = self._shards[number].documents.searchsorted(position - self._starts[number], side="right") - 1
        return self._first_documents[number] + int(index)

    def documents_at(self, start: int, stop: int) -> IntArray:
        """The document of each position in [start, stop), the first one counted as 0."""
        begins = np.zeros(stop - start, np.int64)
        for shard, base, low, high in self._shard_slices(start, stop):
            first, last = shard.documents.searchsorted((low, high))
            begins[shard.documents[first:last] + (base - start)] = 1
        begins[:1] = 0
        return np.cumsum(begins)

    def lengths(self, first: int, last: int) -> IntArray:
        """Tokens per document for documents in [first, last), separators not counted."""
        chunks = []
        while first < last:
            number = bisect_right(self._first_documents, first) - 1
            base, end = self._first_documents[number], min(last, self._first_documents[number + 1])
            starts = self._shards[number].documents[first - base : end - base + 1]
            chunks.append(starts[1:] - starts[:-1] - 1)
            first = end
        return np.concatenate(chunks)

    def _shard_at(self, position: int) -> int:
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} is out of range; there are {len(self):,} tokens")
        return bisect_right(self._starts, position) - 1

    def _shard_slices(self, start: int, stop: int) -> Iterator[tuple[Shard, int, int, int]]:
        """The shards that [start, stop) spans: shard, its first position in the stream, and the range within it."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"{start}:{stop} is outside the {len(self):,} tokens of {self.path}")
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            base, end = self._starts[number], min(stop, self._starts[number + 1])
            yield self._shards[number], base, start - base, end - base
            start, number = end, number + 1
