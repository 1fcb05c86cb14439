"""How much of what is written is always the same: distinct n-grams among all (Li et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meristem.metrics.words import words
from meristem.task import Indices, Metrics


def distinct(said: Sequence[str]) -> Metrics:
    """distinct1 and distinct2: different words, and pairs of words, as a share of all of them."""
    return distinct_resampled(said)(np.arange(len(said)))


def distinct_resampled(said: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same numbers on a resampled set."""
    texts = [words(text) for text in said]
    counted = {f"distinct{size}": _counted(texts, size) for size in (1, 2)}
    return lambda at: {name: count(at) for name, count in counted.items()}


def _counted(texts: Sequence[Sequence[str]], size: int) -> Callable[[Indices], float]:
    number: dict[tuple[str, ...], int] = {}
    runs = [[tuple(text[at : at + size]) for at in range(len(text) - size + 1)] for text in texts]
    each = [[number.setdefault(run, len(number)) for run in some] for some in runs]
    sizes = np.array([len(some) for some in each], np.int64)
    owner = np.repeat(np.arange(len(each)), sizes)
    which = np.array([run for some in each for run in some], np.int64)

    def count(at: Indices) -> float:
        drawn = np.zeros(len(texts), bool)
        drawn[at] = True
        seen = np.zeros(len(number), bool)
        seen[which[drawn[owner]]] = True
        return float(seen.sum() / max(1, sizes[at].sum()))

    return count
