"""Query features of the click model (word unigrams and bigrams), and similarity between queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from meristem.reinforce.clicks.sparse_matrix import Floats, Ints, SparseMatrix
from meristem.reinforce.clicks.text_features import MAX_CHARACTERS, char_ngrams, hash_feature, tokenize


@dataclass(frozen=True, eq=False)
class QueryVocabulary:
    """Unigrams and bigrams that occur in at least two queries, as hashes."""

    ids: Ints

    @classmethod
    def from_queries(cls, queries: Sequence[str]) -> QueryVocabulary:
        """The vocabulary of these queries."""
        counts = Counter(key for query in queries for key in _query_ngrams(query))
        return cls(np.array(sorted(key for key, count in counts.items() if count > 1), dtype=np.int64))

    def __call__(self, queries: Sequence[str]) -> SparseMatrix:
        """[queries, vocabulary] the feature matrix; all n-grams of a query weigh the same, with a norm of 1."""
        column_of = {key: index for index, key in enumerate(self.ids.tolist())}
        entries = [(index, key, len(keys) ** -0.5) for index, query in enumerate(queries)
                 for keys in [sorted(_query_ngrams(query))] for key in keys if key in column_of]  # fmt: skip
        rows, keys, values = zip(*entries, strict=True) if entries else ((), (), ())
        columns = np.array([column_of[key] for key in keys], dtype=np.int64)
        return SparseMatrix(np.array(rows, dtype=np.int64), columns, np.array(values, dtype=np.float64),
                      (len(queries), len(self.ids)), np.zeros(len(queries)))  # fmt: skip


def _query_ngrams(query: str) -> set[int]:
    tokens = tokenize(query)
    return {hash_feature("q", ngram) for ngram in [*tokens, *map(" ".join, pairwise(tokens))]}


def query_similarity(queries: Sequence[str]) -> Callable[[str], Floats]:
    """A function from a query to its cosine similarity with each of these: TF-IDF of words and character n-grams."""
    blocks = [_query_features(query) for query in queries]
    document_counts = Counter(key for block in blocks for key in block)
    rarity = {key: float(1 + np.log((1 + len(queries)) / (1 + count))) for key, count in document_counts.items()}
    max_rarity = max(rarity.values(), default=1.0)

    def weighted(block: Iterable[int]) -> dict[int, float]:
        weights = {key: rarity.get(key, max_rarity) for key in block}
        length = float(np.sqrt(sum(value * value for value in weights.values()))) or 1.0
        return {key: value / length for key, value in weights.items()}

    inverted_index: dict[int, list[tuple[int, float]]] = {}
    for index, block in enumerate(blocks):
        for key, value in weighted(block).items():
            inverted_index.setdefault(key, []).append((index, value))

    def similarity(query: str) -> Floats:
        cosine = np.zeros(len(queries))
        for key, value in weighted(_query_features(query)).items():
            for index, other_weight in inverted_index.get(key, ()):
                cosine[index] += value * other_weight
        return cosine

    return similarity


def _query_features(query: str) -> set[int]:
    return {*(hash_feature("w", token) for token in tokenize(query)), *char_ngrams(query[:MAX_CHARACTERS])}
