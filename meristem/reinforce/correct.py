"""Sentences that are known to be correct: of text that was held out, so that no judge has learned them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from meristem.corpus.document import Document
from meristem.corpus.reading import Reading
from meristem.corpus.refining import home
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import sides
from meristem.randomness import generator
from meristem.reinforce.words import words
from meristem.store.sentences import boundaries

LONGEST = 60
"""Words of the longest sentence taken: what is longer is mostly a list or a table."""
FEWEST = 8
"""Sentences without which no mean says anything."""
BEYOND = 4
"""How many times as many as are wanted are read before some are chosen."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the one that stands before it."""

    before: str
    text: str


def sentences(corpus: CorpusSettings, *, held_out: bool, number: int, shortest: int, seed: int) -> list[Sentence]:
    """Up to so many sentences of a corpus, or of what it holds out; the same ones for the same seed."""
    found: list[Sentence] = []
    for document in Reading(corpus, folder=home(corpus)):
        if held_out and document.split == "train":
            continue
        found += [one for one in _of(document) if shortest <= len(words(one.text)) <= LONGEST]
        if len(found) >= BEYOND * number:
            break
    chosen = generator(seed, "correct", 0, 0).permutation(len(found))[:number]
    return [found[at] for at in sorted(chosen.tolist())]


def _of(document: Document) -> Iterator[Sentence]:
    text = sides(document.text).told
    starts = [*boundaries(text).tolist(), len(text)]
    before = ""
    for start, stop in pairwise(starts):
        sentence = text[start:stop]
        if sentence.strip():
            yield Sentence(before, sentence.rstrip())
        before = sentence
