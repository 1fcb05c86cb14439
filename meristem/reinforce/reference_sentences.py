"""Reference sentences for the grammar reward: correct text that was held out of the judge's training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from meristem.corpus.document import Document
from meristem.corpus.paired_text import split_pair
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.processed_corpus import processed_corpus_dir
from meristem.corpus.settings import CorpusSettings
from meristem.data.text_units import find_sentence_starts
from meristem.reinforce.word_ngrams import normalized_words
from meristem.utils.randomness import generator

MAX_WORDS = 60
"""Longest sentence used, in words: longer ones are mostly lists or tables."""
MIN_SENTENCES = 8
"""Fewest sentences for a meaningful mean."""
OVERSAMPLING = 4
"""Candidates read, as a multiple of the sentences to be sampled."""


@dataclass(frozen=True)
class ReferenceSentence:
    """A sentence and the sentence before it."""

    context: str
    text: str


def sample_sentences(
    corpus: CorpusSettings, *, held_out: bool, count: int, min_words: int, seed: int
) -> list[ReferenceSentence]:
    """Up to `count` sentences of a corpus, or of its held-out part; the same seed gives the same sentences."""
    candidates: list[ReferenceSentence] = []
    for document in CorpusReader(corpus, folder=processed_corpus_dir(corpus)):
        if held_out and document.split == "train":
            continue
        candidates += [
            sentence
            for sentence in _iter_sentences(document)
            if min_words <= len(normalized_words(sentence.text)) <= MAX_WORDS
        ]
        if len(candidates) >= OVERSAMPLING * count:
            break
    indices = generator(seed, "correct", 0, 0).permutation(len(candidates))[:count]
    return [candidates[index] for index in sorted(indices.tolist())]


def _iter_sentences(document: Document) -> Iterator[ReferenceSentence]:
    text = split_pair(document.text).target
    starts = [*find_sentence_starts(text).tolist(), len(text)]
    context = ""
    for start, stop in pairwise(starts):
        sentence = text[start:stop]
        if sentence.strip():
            yield ReferenceSentence(context, sentence.rstrip())
        context = sentence
