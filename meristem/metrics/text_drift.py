"""Text drift: length, repetition, copying and diversity of generated texts before and after reward training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.data.text_units import distinct_share, ngrams, split_spoken_words, split_tokens, split_words
from meristem.metrics import repeated_passages

COPY_NGRAM_SIZES = (5, 6, 7, 8)
"""Sizes of n-grams that count as copied: four words in a row are often an idiom, eight are hardly ever chance."""
REPEAT_NGRAM_SIZE = 4
"""Size of n-grams that count as repeated."""
DISTINCT_WINDOW = 50
"""Window in words for counting repetition, so that longer texts do not count as more repetitive."""
OPENING_WORDS = 4
"""Words that two texts with the same opening share."""
EARLY_END_RATIO = 0.25
"""A text ends early when it has less than this share of the median length before training."""

Interval = tuple[float, float]
DriftMetrics = dict[str, tuple[float, float]]
"""Name → value before and after."""
RatioTerms = dict[str, tuple[list[float], list[float]]]
"""Name → numerator and denominator of each text; the metric is the ratio of their sums."""

DRIFT_DESCRIPTIONS = {
    "texts": "number of texts measured",
    "length": "words per text (ideographs count as words)",
    "early": "texts that end early: less than a quarter of the median length before",
    "unended": "texts cut off at the length limit",
    "within1": "distinct-1: distinct words in windows of 50",
    "within2": "distinct-2: distinct word pairs in windows of 50 words",
    "within3": "distinct-3: distinct word triples in windows of 50 words",
    "repeated4": "texts that repeat a sequence of four words",
    "stutter": "texts with letters repeated six times in a row inside a word",
    "longest_run": "most repetitions of one word in a row, per text",
    **{f"copied{n}": f"sequences of {n} words that occur in the references or the prompt" for n in COPY_NGRAM_SIZES},
    "longest_copied": "words of the longest copied passage, per text",
    "distinct2": "distinct-2: distinct word pairs over all texts",
    "distinct2_even": "the same with texts truncated to one length and repetitions within a text not counted",
    "alike": "texts that begin with the same four words as the text of another prompt",
    "duplicates": "texts that are identical to the text of another prompt",
}
"""What each metric is, for readers of the report."""


@dataclass(frozen=True, kw_only=True)
class GeneratedTexts:
    """Generated texts with their prompts, by index."""

    prompts: Sequence[str]
    texts: Sequence[str]
    references: Sequence[Sequence[str]] = ()
    """Reference texts of each prompt; empty where no prompt has any."""
    ended: Sequence[bool] = ()
    """Whether each text ended by itself; empty where all did."""

    def __post_init__(self) -> None:
        if not self.texts:
            raise MeristemError("there are no texts to measure")
        for name, values in {"prompts": self.prompts, "references": self.references, "ended": self.ended}.items():
            if len(values) != len(self.texts) and (values or name == "prompts"):
                raise MeristemError(f"{len(values)} {name} for {len(self.texts)} texts; each text needs its own")

    @cached_property
    def tokens(self) -> list[list[str]]:
        """Words and punctuation marks of each text."""
        return [split_tokens(text) for text in self.texts]

    @cached_property
    def words(self) -> list[list[str]]:
        """Words of each text, without punctuation."""
        return [split_spoken_words(text) for text in self.texts]

    @cached_property
    def lengths(self) -> list[int]:
        """Number of words of each text."""
        return [len(split_words(text)) for text in self.texts]

    def copy_sources(self, index: int) -> list[list[str]]:
        """The words of the references and the prompt of a text."""
        texts = [*(self.references[index] if self.references else ()), self.prompts[index]]
        return [split_spoken_words(text) for text in texts]


def measure_drift(before: GeneratedTexts, after: GeneratedTexts) -> DriftMetrics:
    """Every metric of `DRIFT_DESCRIPTIONS`, before and after."""
    median_length = median(before.lengths)
    max_words = max(1, int(min(median_length, median(after.lengths))))
    old, new = (
        {**_ratios(_per_text_terms(generated, median_length)), **_cross_prompt_metrics(generated, max_words)}
        for generated in (before, after)
    )
    return {name: (old[name], new[name]) for name in DRIFT_DESCRIPTIONS}


def drift_intervals(
    before: GeneratedTexts, after: GeneratedTexts, *, seed: int = 0
) -> dict[str, tuple[Interval, Interval]]:
    """Bootstrap intervals of the per-text metrics, before and after; metrics across texts have none."""
    median_length = median(before.lengths)
    old, new = (_bootstrap_intervals(_per_text_terms(generated, median_length), seed) for generated in (before, after))
    return {name: (old[name], new[name]) for name in old}


def _bootstrap_intervals(terms: RatioTerms, seed: int) -> dict[str, Interval]:
    from meristem.metrics import bootstrap  # it imports torch, which texts do not need

    table = np.array([column for pair in terms.values() for column in pair]).T  # [texts, numerators and denominators]

    def measure(indices: NDArray[np.int64]) -> dict[str, float]:
        numerators, denominators = bootstrap.sum_rows(table, indices).reshape(-1, 2).T
        return dict(zip(terms, map(_ratio, terms, numerators, denominators), strict=True))

    return bootstrap.confidence_intervals(measure, len(table), seed=seed)


def _ratios(terms: RatioTerms) -> dict[str, float]:
    return {
        name: _ratio(name, sum(numerators), sum(denominators)) for name, (numerators, denominators) in terms.items()
    }


def _ratio(name: str, numerator: float, denominator: float) -> float:
    """The ratio of two sums; with an empty denominator nothing was repeated or copied."""
    return float(numerator / denominator) if denominator else float(name.startswith("within"))


def _per_text_terms(generated: GeneratedTexts, median_length: float) -> RatioTerms:
    """Numerators and denominators of all per-text metrics."""
    ones = [1.0] * len(generated.texts)
    longest_runs = [float(repeated_passages.longest_word_run(tokens)) for tokens in generated.tokens]
    return {
        "length": ([float(length) for length in generated.lengths], ones),
        "early": (
            [float(length == 0 or length < EARLY_END_RATIO * median_length) for length in generated.lengths],
            ones,
        ),
        "unended": ([float(not ended) for ended in generated.ended] or [0.0 for _ in ones], ones),
        **{f"within{size}": _distinct_terms(generated, size) for size in (1, 2, 3)},
        f"repeated{REPEAT_NGRAM_SIZE}": (
            [float(repeated_passages.has_repeated_ngram(tokens, REPEAT_NGRAM_SIZE)) for tokens in generated.tokens],
            ones,
        ),
        "stutter": ([float(repeated_passages.has_stutter(text)) for text in generated.texts], ones),
        "longest_run": (longest_runs, ones),
        **_copy_terms(generated, ones),
    }


def _distinct_terms(generated: GeneratedTexts, size: int) -> tuple[list[float], list[float]]:
    """The mean share of distinct n-grams over windows of `DISTINCT_WINDOW` words of each text."""
    windows = [
        [tokens[start : start + DISTINCT_WINDOW] for start in range(0, len(tokens), DISTINCT_WINDOW)]
        for tokens in generated.tokens
    ]
    return [sum(distinct_share([window], size) for window in text_windows) for text_windows in windows], [
        float(len(text_windows)) for text_windows in windows
    ]


def _copy_terms(generated: GeneratedTexts, ones: list[float]) -> RatioTerms:
    """Copied n-grams of each size over all texts, and the longest copied passage of each text."""
    pairs = [(words, generated.copy_sources(index)) for index, words in enumerate(generated.words)]
    terms = {}
    for size in COPY_NGRAM_SIZES:
        copy_counts = [repeated_passages.count_copied_ngrams(words, sources, size) for words, sources in pairs]
        terms[f"copied{size}"] = (
            [float(num_copied) for num_copied, _ in copy_counts],
            [float(num_ngrams) for _, num_ngrams in copy_counts],
        )
    longest = [float(len(repeated_passages.longest_copied_passage(words, sources))) for words, sources in pairs]
    return terms | {"longest_copied": (longest, ones)}


def _cross_prompt_metrics(generated: GeneratedTexts, max_words: int) -> dict[str, float]:
    """Similarity between texts of different prompts; several texts of one prompt may well be alike."""
    first_index: dict[str, int] = {}
    for index, prompt in enumerate(generated.prompts):
        first_index.setdefault(prompt, index)
    prompt_words = [split_words(generated.texts[index]) for index in first_index.values()]
    return {
        "texts": float(len(generated.texts)),
        "distinct2": distinct_share(map(split_words, generated.texts), 2),
        "distinct2_even": _distinct2_across(prompt_words, max_words),
        "alike": _duplicate_share([tuple(generated.words[index][:OPENING_WORDS]) for index in first_index.values()]),
        "duplicates": _duplicate_share([tuple(generated.words[index]) for index in first_index.values()]),
    }


def _distinct2_across(texts: Sequence[Sequence[str]], max_words: int) -> float:
    """distinct-2 across texts, where repetitions within a text are not counted."""
    bigram_sets = [set(ngrams(words[:max_words], 2)) for words in texts]
    total = sum(map(len, bigram_sets))
    return len(set().union(*bigram_sets)) / total if total else 1.0


def _duplicate_share(items: Sequence[tuple[str, ...]]) -> float:
    """The share of items that occur more than once."""
    counts = Counter(items)
    return fmean(counts[item] > 1 for item in items)
