"""distinct-n: the share of distinct n-grams among all n-grams of generated texts (Li et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meristem.data.text_units import ngrams, split_words
from meristem.interfaces.task_evaluation import Indices, Metrics


def distinct_metrics(texts: Sequence[str]) -> Metrics:
    """distinct1 and distinct2: distinct words and word pairs as a share of all of them."""
    return distinct_resampler(texts)(np.arange(len(texts)))


def distinct_resampler(texts: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same metrics as a function of resampled indices."""
    token_lists = [split_words(text) for text in texts]
    share_fns = {f"distinct{size}": _distinct_share_fn(token_lists, size) for size in (1, 2)}
    return lambda indices: {name: count(indices) for name, count in share_fns.items()}


def _distinct_share_fn(token_lists: Sequence[Sequence[str]], size: int) -> Callable[[Indices], float]:
    ngram_ids: dict[tuple[str, ...], int] = {}
    id_lists = [[ngram_ids.setdefault(ngram, len(ngram_ids)) for ngram in ngrams(text, size)] for text in token_lists]
    ngram_counts = np.array([len(items) for items in id_lists], np.int64)
    owner = np.repeat(np.arange(len(id_lists)), ngram_counts)
    flat_ids = np.array([ngram for items in id_lists for ngram in items], np.int64)

    def count(index: Indices) -> float:
        drawn = np.zeros(len(token_lists), bool)
        drawn[index] = True
        is_seen = np.zeros(len(ngram_ids), bool)
        is_seen[flat_ids[drawn[owner]]] = True
        return float(is_seen.sum() / max(1, ngram_counts[index].sum()))

    return count
