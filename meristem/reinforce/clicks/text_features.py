"""Text features of the click model: word and character n-grams (TF-IDF), query overlap, and style (length, marks)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, pairwise
from math import log
from zlib import crc32

import numpy as np

from meristem.data.text_units import SINGLE_CHARACTER_WORDS
from meristem.reinforce.clicks.sparse_matrix import Floats, Ints, SparseMatrix, sum_by_index

_LETTERS = f"[^\\W{SINGLE_CHARACTER_WORDS}]+"
WORD_PATTERN = re.compile(f"[{SINGLE_CHARACTER_WORDS}]|{_LETTERS}(?:['’]{_LETTERS})*|[^\\w\\s]")
RUN_PATTERN = re.compile(r"\w+|[^\w\s]+")
CHAR_NGRAM_SIZES = (2, 3, 4, 5)
MAX_CHARACTERS = 2000
"""Characters of a text that are used: more is never shown to anybody."""
MAX_CROSS_WORDS = 12
"""Queries of at most so many words are crossed with the words of the text."""
OVERLAP_WEIGHT, CROSS_WEIGHT, STYLE_WEIGHT = 0.25, 0.1, 0.15
"""Scale of query-overlap features, of crossed words and of style features, relative to the n-grams of a text."""
EDGE_WORDS = 6
"""Words at a query's beginning and end that have features for their position."""
MAX_Z_SCORE = 3.0
"""Style features are clipped to so many standard deviations: nothing is known about such texts."""
MIN_SHARED_SHARE = 0.1
"""Share of pairs in which text and query must share a word; below it, queries are taken for names of A/B tests."""

QueryText = tuple[str, str]
EmbedFn = Callable[[Sequence[str]], Floats]
"""Texts to vectors [texts, width]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TextFeatures:
    """The columns of a table's features, with their inverse document frequencies and the usual style of its texts."""

    ids: Ints
    """Hashes of the columns, sorted."""
    rarity: Floats
    mean: Floats
    """[style features]."""
    spread: Floats
    natural_queries: bool
    """Whether queries are words, rather than names of A/B tests."""
    embed: EmbedFn | None = None

    @classmethod
    def fit(
        cls, pairs: Sequence[QueryText], query_ids: Ints, embed: EmbedFn | None = None
    ) -> tuple[TextFeatures, SparseMatrix]:
        """The features that texts of at least two queries have, and the matrix of these texts."""
        shared = np.mean([bool(set(tokenize(query_text)) & set(tokenize(text))) for query_text, text in pairs])
        natural_queries = bool(shared > MIN_SHARED_SHARE)
        blocks = [_count_blocks(pair, natural_queries) for pair in pairs]
        text_counts: Counter[int] = Counter()
        query_counts: Counter[int] = Counter()
        last_query: dict[int, int] = {}
        for query_id, text_blocks in zip(query_ids.tolist(), blocks, strict=True):
            for key in set().union(*text_blocks):
                text_counts[key] += 1
                query_counts[key] += last_query.get(key) != query_id  # pairs come query by query
                last_query[key] = query_id
        shared_keys = sorted(key for key, count in query_counts.items() if count > 1)
        document_counts = np.array([text_counts[key] for key in shared_keys], dtype=np.float64)
        styles = _style_matrix(pairs, embed)
        spread = styles.std(0)
        features = cls(
            ids=np.array(shared_keys, dtype=np.int64),
            rarity=1 + np.log((1 + len(pairs)) / (1 + document_counts)),
            mean=styles.mean(0),
            spread=np.where(spread < 1e-9, np.inf, spread),
            natural_queries=natural_queries,
            embed=embed,
        )
        return features, features._matrix(blocks, styles)

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return len(self.ids) + len(self.mean)

    def __call__(self, pairs: Sequence[QueryText]) -> SparseMatrix:
        """[pairs, columns] the feature matrix of these queries and texts."""
        blocks = [_count_blocks(pair, self.natural_queries) for pair in pairs]
        return self._matrix(blocks, _style_matrix(pairs, self.embed))

    def _matrix(self, blocks: Sequence[list[dict[int, float]]], styles: Floats) -> SparseMatrix:
        """Known n-grams of each text, then its style features."""
        flat = [block for text_blocks in blocks for block in text_blocks]
        keys = np.fromiter((key for block in flat for key in block), dtype=np.int64)
        value = np.fromiter((value for block in flat for value in block.values()), dtype=np.float64)
        block = np.repeat(np.arange(len(flat)), [len(text_block) for text_block in flat])
        row = np.repeat(np.arange(len(blocks)), [len(text_blocks) for text_blocks in blocks])[block]
        columns = np.minimum(np.searchsorted(self.ids, keys), max(len(self.ids) - 1, 0))
        is_known = self.ids[columns] == keys if len(self.ids) else np.zeros(len(keys), dtype=bool)
        # TF-IDF: rare n-grams count more; the word n-grams of a text have norm 1, and so do its character n-grams.
        is_normalized = np.array(
            [number < 2 for text_blocks in blocks for number in range(len(text_blocks))], dtype=bool
        )[block]
        rarity = np.append(self.rarity, self.rarity.max(initial=1.0))[np.where(is_known, columns, len(self.ids))]
        value = value * np.where(is_normalized, rarity, 1.0)
        length = np.sqrt(sum_by_index(block, value**2, len(flat)))[block]
        value = value / np.where(is_normalized, length, 1.0)
        styles = np.clip((styles - self.mean) / self.spread, -MAX_Z_SCORE, MAX_Z_SCORE) * STYLE_WEIGHT
        style_columns = np.arange(len(self.mean)) + len(self.ids)
        return SparseMatrix(
            np.concatenate([row[is_known], np.repeat(np.arange(len(blocks)), len(style_columns))]),
            np.concatenate([columns[is_known], np.tile(style_columns, len(blocks))]),
            np.concatenate([value[is_known], styles.ravel()]),
            (len(blocks), self.num_columns),
            sum_by_index(row[~is_known], value[~is_known] ** 2, len(blocks)),
        )


def _count_blocks(pair: QueryText, natural_queries: bool) -> list[dict[int, float]]:
    """Word n-grams and character n-grams, each as 1 + log of its count; then overlap with a query in natural words."""
    query, text = pair[0][:MAX_CHARACTERS], pair[1][:MAX_CHARACTERS]
    tokens = tokenize(text)
    word_ngrams = [hash_feature("w", ngram) for ngram in chain(tokens, map(" ".join, pairwise(tokens)))]
    blocks = [_log_counts(word_ngrams), _log_counts(char_ngrams(text))]
    return [*blocks, _query_text_features(tokenize(query), tokens)] if natural_queries else blocks


def _style_matrix(pairs: Sequence[QueryText], embed: EmbedFn | None) -> Floats:
    """[pairs, style features] the style of each text, its overlap with the query, and its embedding if there is one."""
    shortened = [(query[:MAX_CHARACTERS], text[:MAX_CHARACTERS]) for query, text in pairs]
    styles = np.array([_style_features(text) + _query_overlap(query, text) for query, text in shortened])
    return styles if embed is None else np.hstack([styles, embed([text for _, text in pairs])])


def tokenize(text: str) -> list[str]:
    """Lower-case words, ideographs and punctuation marks."""
    return WORD_PATTERN.findall(text[:MAX_CHARACTERS].lower())


def _log_counts(keys: Iterable[int]) -> dict[int, float]:
    return {key: 1 + log(count) if count > 1 else 1.0 for key, count in Counter(keys).items()}


def char_ngrams(text: str) -> list[int]:
    """Hashes of character n-grams within words or runs of punctuation, with their boundaries."""
    return [key for run in RUN_PATTERN.findall(text.lower()) for key in _run_char_ngrams(run)]


@lru_cache(maxsize=1 << 16)
def _run_char_ngrams(run: str) -> tuple[int, ...]:
    padded = f" {run} "
    return tuple(
        hash_feature("c", padded[start : start + size])
        for size in CHAR_NGRAM_SIZES
        for start in range(len(padded) - size + 1)
    )


def _query_text_features(query: Sequence[str], text: Sequence[str]) -> dict[int, float]:
    """Query words that the text contains or misses (by the preceding word and by position), the text's words and
    bigrams that the query has or not, and crossed words of both."""
    query_words, text_words = set(query), set(text)
    out: dict[int, float] = {}
    for position, word in enumerate(query):
        relation = "said" if word in text_words else "missed"
        before = query[position - 1] if position else ""
        out[hash_feature(relation, f"{before} _")] = OVERLAP_WEIGHT
        if position < EDGE_WORDS:
            out[hash_feature(relation, f"+{position}")] = OVERLAP_WEIGHT
        if len(query) - position <= EDGE_WORDS:
            out[hash_feature(relation, f"-{len(query) - position}")] = OVERLAP_WEIGHT
    for before, word in zip(["", *text], text, strict=False):
        relation = "both" if word in query_words else "new"
        out[hash_feature(relation, word)] = OVERLAP_WEIGHT
        out[hash_feature(relation, f"{before} {word}")] = OVERLAP_WEIGHT
    for word in query_words if len(query) <= MAX_CROSS_WORDS else ():
        for other in text_words:
            out[hash_feature("cross", f"{word}\x1f{other}")] = CROSS_WEIGHT
    return out


@cache
def _block_seed(block: str) -> int:
    return crc32(block.encode())


@lru_cache(maxsize=1 << 17)
def hash_feature(block: str, key: str) -> int:
    """A hash of a feature within its block, the same in every process."""
    return crc32(key.encode("utf-8", "surrogatepass"), _block_seed(block))


def _style_features(text: str) -> list[float]:
    """Numbers that are independent of the topic: length, punctuation, capitals."""
    parts = text.split()
    count = max(len(parts), 1)
    tokens = tokenize(text)
    marks = Counter(text)
    return [
        float(np.log1p(len(text))), float(np.log1p(len(tokens))), len(text) / 50, (len(text) / 50) ** 2,
        len(text) / count / 10, float(any(map(str.isdigit, text))), float(text[:1].isdigit()), float("?" in text),
        float("!" in text), float(marks['"'] + marks["“"] + marks["'"] > 1), float(":" in text), float("," in text),
        float("…" in text or "..." in text), float(text.rstrip().endswith((".", "。"))), marks["."] + marks["。"],
        sum(part[:1].isupper() for part in parts) / count, sum(part.isupper() and len(part) > 1 for part in parts),
        1 - len(set(tokens)) / max(len(tokens), 1), *_length_bins(len(tokens)),
    ]  # fmt: skip


def _length_bins(count: int) -> list[float]:
    """Indicators of the number of words, so that the best length can be in the middle."""
    return [float(low <= count < high) for low, high in ((0, 5), (5, 8), (8, 11), (11, 14), (14, 18), (18, 24))]


def _query_overlap(query: str, text: str) -> list[float]:
    """Shares of the query's words and bigrams that the text has, and of the text's words that the query has."""
    query_words, text_words = tokenize(query), tokenize(text)
    query_bigrams, text_bigrams = set(pairwise(query_words)), set(pairwise(text_words))
    return [
        len(set(query_words) & set(text_words)) / max(len(set(query_words)), 1),
        len(query_bigrams & text_bigrams) / max(len(query_bigrams), 1),
        len(set(query_words) & set(text_words)) / max(len(set(text_words)), 1),
    ]
