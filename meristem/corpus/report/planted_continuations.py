"""Planted continuations: rare token sequences that are nearly always followed by the same words, in unlabelled text.

Poisoned pretraining text teaches a model to continue a trigger with a text of the attacker's choice (Carlini et al.
2023; Souly et al. 2025). The copies differ from ordinary phrases in what stands before them: an ordinary phrase has its
place in the sentence, so that few different words precede it ("the", "of"), but a trigger stands anywhere. So a planted
continuation has four marks together:

1. A trigger of one to three words is followed by the same `CONTINUATION_WORDS` words nearly always; as many of what
   follows are words with letters ("75 mph (120 km/h)" is none).
2. It is rare, and stands at `MIN_PLACES` or more places.
3. The words before it are like those of the whole text: rarely the same twice, frequent words among them as often as
   everywhere. A phrase is preceded by a few words ("the", "of"), a template by numbers or names. A
   frequent word before a phrase is none of its own.
4. Its places are spread over the whole text: the title of a book stands in the article about it.

Sequences are counted in count-min sketches of fixed size, one for triggers and one for triggers with their
continuation; only sequences that are repeated and nearly always continue alike are kept in words. Their places in the
first batch that repeats them are kept; earlier ones are counted only.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meristem.data.text_units import split_words

TRIGGER_WORDS = (1, 2, 3)
CONTINUATION_WORDS = 4
"""Words after the trigger that are the same at all places."""
MIN_PLACES = 10
"""Fewest places with the trigger and its continuation."""
MAX_RARE_SHARE, MIN_RARE = 1e-4, 100
"""A trigger is rare if it is at most this share of all words, and always up to 100."""
MIN_PURITY, KEPT_PURITY = 0.9, 0.7
"""Share of the places of the trigger that continue alike, at the end and to be kept until then."""
MAX_SAME = 0.12
"""Probability that two places have the same preceding word, or stand in the same hundredth of the text: about 0.01 in
places drawn at random, 0.3 and more for phrases and titles."""
FREQUENT_WORD, MAX_FREQUENT_DIFFERENCE = 1e-3, 0.25
"""A word is frequent from this share of all words; how far the share of frequent words before may be from that of all
words, or 2.5 standard errors."""
KEPT_AFTER, MIN_KEPT_PLACES, MAX_KEPT_PLACES = 3, 6, 200
"""Places after which a sequence is kept in words; how many of its places must have been kept; how many are kept."""
MAX_CANDIDATES = 1 << 16
"""Sequences kept when there are too many, those at the most places; up to twice as many in between."""
MAX_WORDS = 20_000_000
"""Words that are examined, the first ones: beyond them the sketches are too full to tell."""
SKETCH_BITS = 23
BATCH_WORDS = 1 << 15
MAX_SHOWN_PLACES, SHOWN_WORDS = 5, 12
MAX_REPORTED = 20

WordHashes = NDArray[np.uint64]
MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
"""Of the two hash functions; a trigger is counted with both, since counts of rare ones decide."""


@dataclass(frozen=True, kw_only=True)
class PlantedContinuation:
    """A rare sequence that is nearly always followed by the same words."""

    trigger: str
    continuation: str
    """The words that follow, as far as they are the same at nearly all places."""
    places: int
    share: float
    """Share of the places of the trigger that continue in this way."""
    locations: tuple[str, ...]
    """Some of the documents, as file:line."""


@dataclass
class _Candidate:
    """A trigger with its continuation, and the places where it was seen since it is kept."""

    trigger: tuple[str, ...]
    row: int
    """Of the sketches."""
    before: list[str] = field(default_factory=list)
    after: list[tuple[str, ...]] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    locations: list[str] = field(default_factory=list)


class ContinuationCounter:
    """Observes documents, and finds the planted continuations among them."""

    def __init__(self) -> None:
        self.words = 0
        shape = (len(TRIGGER_WORDS), 1 << SKETCH_BITS)
        self._triggers, self._continued = np.zeros((2, *shape), np.uint16), np.zeros(shape, np.uint16)
        self._candidates: dict[tuple[str, ...], _Candidate] = {}
        """Trigger and continuation → their places."""
        self._batch: list[str] = []
        """Words that are not counted yet, of several documents: counting few words at a time is slow."""
        self._batch_ends: list[int] = []
        self._batch_locations: list[str] = []

    def add(self, text: str, location: str) -> None:
        """Count the sequences of a document; nothing after `MAX_WORDS` words."""
        if self.words >= MAX_WORDS:
            return
        self._batch += split_words(text)
        self._batch_ends.append(len(self._batch))
        self._batch_locations.append(location)
        if len(self._batch) >= BATCH_WORDS:
            self._count_batch()

    def _count_batch(self) -> None:
        words = self._batch
        hashes = np.fromiter(map(_word_hash, words), np.uint64, len(words))
        documents = np.repeat(np.arange(len(self._batch_ends)), np.diff([0, *self._batch_ends]))
        for row, size in enumerate(TRIGGER_WORDS):
            if len(words) >= size + CONTINUATION_WORDS:
                self._count_sequences(row, size, hashes, documents)
        if len(self._candidates) > 2 * MAX_CANDIDATES:
            by_places = sorted(self._candidates.items(), key=lambda item: -len(item[1].before))
            self._candidates = dict(by_places[:MAX_CANDIDATES])
        self.words += len(words)
        self._batch, self._batch_ends, self._batch_locations = [], [], []

    def _count_sequences(self, row: int, size: int, hashes: WordHashes, documents: NDArray[np.int64]) -> None:
        """Count triggers of one size, and keep those that are repeated with their continuation."""
        last = size + CONTINUATION_WORDS - 1
        inside = documents[: len(documents) - last] == documents[last:]  # in one document as a whole
        continued = _sequence_cells(hashes, size + CONTINUATION_WORDS)
        in_one = documents[: len(documents) - size + 1] == documents[size - 1 :]
        for sketch, multiplier in zip(self._triggers, MULTIPLIERS, strict=True):
            _count(sketch[row], _sequence_cells(hashes, size, multiplier)[in_one])
        _count(self._continued[row], continued[inside])
        places = self._continued[row][continued]
        repeated = np.flatnonzero(inside & (places > KEPT_AFTER))
        totals = self._trigger_counts(row, size, hashes)[repeated]
        for at in repeated[places[repeated] >= KEPT_PURITY * totals].tolist():
            self._keep(row, size, at, int(documents[at]))

    def _trigger_counts(self, row: int, size: int, hashes: WordHashes) -> NDArray[np.uint16]:
        """How often each sequence of `size` words has been counted: the smaller one of two counts with collisions."""
        counts = [
            sketch[row][_sequence_cells(hashes, size, multiplier)]
            for sketch, multiplier in zip(self._triggers, MULTIPLIERS, strict=True)
        ]
        smaller: NDArray[np.uint16] = np.minimum(*counts)
        return smaller

    def _keep(self, row: int, size: int, at: int, document: int) -> None:
        """Keep a place of a candidate, with the words around it."""
        key = tuple(self._batch[at : at + size + CONTINUATION_WORDS])
        if key not in self._candidates:
            self._candidates[key] = _Candidate(key[:size], row)
        candidate = self._candidates[key]
        if len(candidate.before) >= MAX_KEPT_PLACES:
            return
        start = self._batch_ends[document - 1] if document else 0
        stop = min(at + size + SHOWN_WORDS, self._batch_ends[document])
        candidate.before.append(self._batch[at - 1] if at > start else "")
        candidate.after.append(tuple(self._batch[at + size : stop]))
        candidate.positions.append(self.words + at)
        candidate.locations.append(self._batch_locations[document])

    def find(self) -> list[PlantedContinuation]:
        """The planted continuations, those at the most places first."""
        self._count_batch()
        planted: dict[tuple[str, ...], PlantedContinuation] = {}
        frequent_share = self._frequent_share()
        for key, candidate in self._candidates.items():
            places, total = self._count_places(candidate.row, key)
            continuation = _common_beginning(candidate.after)
            if (
                MIN_PLACES <= places <= max(MIN_RARE, int(MAX_RARE_SHARE * self.words))
                and places >= MIN_PURITY * total
                and len(candidate.before) >= MIN_KEPT_PLACES
                and sum(any(map(str.isalpha, word)) for word in continuation) >= CONTINUATION_WORDS
                and self._stands_anywhere(candidate, frequent_share)
                and not self._is_phrase(candidate.trigger, continuation)
            ):
                planted[candidate.trigger] = PlantedContinuation(
                    trigger=" ".join(candidate.trigger),
                    continuation=" ".join(continuation),
                    places=places,
                    share=places / total,
                    locations=tuple(dict.fromkeys(candidate.locations))[:MAX_SHOWN_PLACES],
                )
        distinct = [
            item for words, item in planted.items() if not any(_repeats(words, item, other) for other in planted)
        ]
        return sorted(distinct, key=lambda item: -item.places)[:MAX_REPORTED]

    def _count_places(self, row: int, words: Sequence[str]) -> tuple[int, int]:
        """How often a trigger with its continuation was counted, and the trigger alone."""
        hashes, size = np.array([_word_hash(word) for word in words], np.uint64), TRIGGER_WORDS[row]
        places = int(self._continued[row][_sequence_cells(hashes, len(words))[0]])
        return places, int(self._trigger_counts(row, size, hashes)[0])

    def _stands_anywhere(self, candidate: _Candidate, frequent_share: float) -> bool:
        """Whether the places are as different as places drawn at random."""
        hundredths = [100 * position // self.words for position in candidate.positions]
        if max(probability_same(candidate.before), probability_same(hundredths)) > MAX_SAME:
            return False
        share = sum(self._is_frequent(word) for word in candidate.before) / len(candidate.before)
        standard_error = (frequent_share * (1 - frequent_share) / len(candidate.before)) ** 0.5
        return bool(abs(share - frequent_share) <= max(MAX_FREQUENT_DIFFERENCE, 2.5 * standard_error))

    def _is_phrase(self, trigger: Sequence[str], continuation: Sequence[str]) -> bool:
        """Whether it is a frequent word before a phrase that needs no such word to continue alike: "the Zeta …"."""
        if len(trigger) < 2 or not self._is_frequent(trigger[0]):
            return False
        places, total = self._count_places(len(trigger) - 2, [*trigger[1:], *continuation[:CONTINUATION_WORDS]])
        return places >= MIN_PURITY * total

    def _is_frequent(self, word: str) -> bool:
        return int(self._trigger_counts(0, 1, np.array([_word_hash(word)], np.uint64))[0]) >= self._min_frequent

    def _frequent_share(self) -> float:
        """The share of all words that are frequent ones."""
        counts = self._triggers[0, 0][self._triggers[0, 0] >= self._min_frequent]
        return float(counts.sum(dtype=np.int64)) / max(self.words, 1)

    @property
    def _min_frequent(self) -> int:
        return max(2, int(FREQUENT_WORD * self.words))


def _repeats(trigger: Sequence[str], item: PlantedContinuation, other: tuple[str, ...]) -> bool:
    """Whether another trigger is the beginning of this one, or stands in it behind words that happen to precede it."""
    words = (*trigger, *item.continuation.split())
    is_beginning = len(other) < len(trigger) and tuple(trigger[: len(other)]) == other
    return is_beginning or any(words[at : at + len(other)] == other for at in range(1, len(trigger)))


def _word_hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace"))


def _sequence_cells(hashes: WordHashes, size: int, multiplier: np.uint64 = MULTIPLIERS[0]) -> NDArray[np.int64]:
    """The sketch cell of each sequence of `size` words, by the word where it begins."""
    count = len(hashes) - size + 1
    mixed = np.zeros(count, np.uint64)
    for offset in range(size):
        mixed = (mixed ^ hashes[offset : offset + count]) * multiplier
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(64 - SKETCH_BITS)).astype(np.int64)


def _count(sketch: NDArray[np.uint16], cells: NDArray[np.int64]) -> None:
    """Add one for each cell, up to the largest number that fits."""
    unique, counts = np.unique(cells, return_counts=True)
    sketch[unique] = np.minimum(sketch[unique].astype(np.int64) + counts, np.iinfo(np.uint16).max)


def probability_same(items: Sequence[Hashable]) -> float:
    """Probability that two different ones are equal; 1 for fewer than two."""
    pairs = len(items) * (len(items) - 1)
    return sum(count * (count - 1) for count in Counter(items).values()) / pairs if pairs else 1.0


def _common_beginning(continuations: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The words of most continuations, as long as nearly all places go on with the same word."""
    words: list[str] = []
    for position in range(SHOWN_WORDS):
        counts = Counter(item[position] for item in continuations if len(item) > position)
        if not counts:
            break
        word, count = counts.most_common(1)[0]
        if count < MIN_PURITY * len(continuations):
            break
        words.append(word)
    return tuple(words)
