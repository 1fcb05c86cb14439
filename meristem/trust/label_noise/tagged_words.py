"""Words with tags for confident learning: their places by file and line, and cross-validated probabilities of tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.data.text_units import join_words
from meristem.interfaces.sample import Sample
from meristem.metrics.linear_baseline import tag_probabilities
from meristem.trust.label_noise.out_of_sample import Log

CONTEXT_WORDS = 8
"""Words shown on each side of a suspicious one."""


@dataclass(frozen=True, kw_only=True)
class TaggedWords:
    """All words of tagged sentences, one after another."""

    samples: Sequence[Sample]
    tags: Sequence[str]
    """The tag of each word."""
    sentence_of: NDArray[np.int64]
    """The sentence of each word."""
    number: NDArray[np.int64]
    """Its number in the sentence."""

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> TaggedWords:
        """The words of samples."""
        sizes = [len(sample.inputs["words"]) for sample in samples]
        return cls(
            samples=samples,
            tags=[str(tag) for sample in samples for tag in sample.gold],
            sentence_of=np.repeat(np.arange(len(samples)), sizes),
            number=np.concatenate([np.arange(size) for size in sizes]),
        )

    def context(self, index: int) -> str:
        """The word between brackets, with its neighbours."""
        words, at = self.samples[self.sentence_of[index]].inputs["words"], int(self.number[index])
        before, after = words[max(0, at - CONTEXT_WORDS) : at], words[at + 1 : at + 1 + CONTEXT_WORDS]
        parts = [join_words(before)[0], f"[{words[at]}]", join_words(after)[0]]
        start, end = "…" * (at > CONTEXT_WORDS), "…" * (at + 1 + CONTEXT_WORDS < len(words))
        return f"{start}{' '.join(part for part in parts if part)}{end}"

    def location(self, index: int) -> str:
        """File and line of the word where a line has one word; otherwise the sample's, with the number of the word."""
        sample, at = self.samples[self.sentence_of[index]], int(self.number[index])
        lines = _word_lines(sample.location, tuple(sample.inputs["words"]))
        return f"{sample.location} word {at + 1}" if lines is None else lines[at]


def cross_validate_tags(
    words: TaggedWords, labels: Sequence[str], folds: NDArray[np.int64], log: Log
) -> NDArray[np.float64]:
    """[words, labels]: for each word the probabilities by a tagger that was trained on the other folds' sentences."""
    sentences = [sample.inputs["words"] for sample in words.samples]
    golds = [sample.gold for sample in words.samples]
    probabilities = np.zeros((len(words.tags), len(labels)))
    for fold in range(int(folds.max()) + 1):
        log(f"fold {fold + 1} of {int(folds.max()) + 1}")
        train = np.flatnonzero(folds != fold).tolist()
        probabilities[folds[words.sentence_of] == fold] = tag_probabilities(
            [sentences[index] for index in train],
            [golds[index] for index in train],
            [sentences[index] for index in np.flatnonzero(folds == fold).tolist()],
            labels,
        )
    return probabilities


@lru_cache(maxsize=4096)
def _word_lines(location: str, words: tuple[str, ...]) -> list[str] | None:
    """File and line of each word of a CoNLL sentence that begins at a location; None for other files."""
    name, _, start = location.rpartition(":")
    lines = _file_lines(name) if start.isdigit() else ()
    number, places = int(start) if start.isdigit() else 0, list[str]()
    for word in words:
        while number <= len(lines) and lines[number - 1].strip() and not _has_cell(lines[number - 1], word):
            number += 1  # a comment, or the range of a multiword token
        if number > len(lines) or not lines[number - 1].strip():
            return None
        places.append(f"{name}:{number}")
        number += 1
    return places


def _has_cell(line: str, word: str) -> bool:
    """Whether one of the first two cells is the word, or the word with a number behind it."""
    return any(cell == word or cell.rstrip("0123456789") == word for cell in line.split()[:2])


@lru_cache(maxsize=4)
def _file_lines(name: str) -> Sequence[str]:
    """The lines of a file; none of one that is compressed or not there."""
    path = Path(name)
    if not path.is_file() or path.suffix in (".gz", ".zst", ".bz2", ".xz"):
        return ()
    return path.read_text(encoding="utf-8", errors="replace").split("\n")
