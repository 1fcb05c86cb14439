"""What a click model sees of a query alone, and which queries are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from meristem.reinforce.clicks.features import LONGEST, hashed, letters, words
from meristem.reinforce.clicks.matrix import Floats, Ints, Sparse


@dataclass(frozen=True, eq=False)
class Words:
    """The words of queries, alone and with their neighbours, that at least two queries have."""

    ids: Ints

    @classmethod
    def of(cls, queries: Sequence[str]) -> Words:
        """The words of these."""
        often = Counter(key for query in queries for key in _asked(query))
        return cls(np.array(sorted(key for key, count in often.items() if count > 1), dtype=np.int64))

    def __call__(self, queries: Sequence[str]) -> Sparse:
        """The matrix of these queries; every word of a query counts the same, all of it 1."""
        at = {key: number for number, key in enumerate(self.ids.tolist())}
        found = [(number, key, len(keys) ** -0.5) for number, query in enumerate(queries)
                 for keys in [sorted(_asked(query))] for key in keys if key in at]  # fmt: skip
        rows, keys, values = zip(*found, strict=True) if found else ((), (), ())
        columns = np.array([at[key] for key in keys], dtype=np.int64)
        return Sparse(np.array(rows, dtype=np.int64), columns, np.array(values, dtype=np.float64),
                      (len(queries), len(self.ids)), np.zeros(len(queries)))  # fmt: skip


def _asked(query: str) -> set[int]:
    said = words(query)
    return {hashed("q", one) for one in [*said, *map(" ".join, pairwise(said))]}


def nearness(queries: Sequence[str]) -> Callable[[str], Floats]:
    """How alike a query is to each of these: the cosine of their words and letters, rare ones counting more."""
    blocks = [_spelled(query) for query in queries]
    often = Counter(key for block in blocks for key in block)
    rarity = {key: float(1 + np.log((1 + len(queries)) / (1 + count))) for key, count in often.items()}
    usual = max(rarity.values(), default=1.0)

    def weighted(block: Iterable[int]) -> dict[int, float]:
        found = {key: rarity.get(key, usual) for key in block}
        length = float(np.sqrt(sum(value * value for value in found.values()))) or 1.0
        return {key: value / length for key, value in found.items()}

    rows: dict[int, list[tuple[int, float]]] = {}
    for number, block in enumerate(blocks):
        for key, value in weighted(block).items():
            rows.setdefault(key, []).append((number, value))

    def near(query: str) -> Floats:
        cosine = np.zeros(len(queries))
        for key, value in weighted(_spelled(query)).items():
            for number, other in rows.get(key, ()):
                cosine[number] += value * other
        return cosine

    return near


def _spelled(query: str) -> set[int]:
    return {*(hashed("w", one) for one in words(query)), *letters(query[:LONGEST])}
