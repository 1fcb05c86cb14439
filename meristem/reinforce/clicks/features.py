"""What a click model sees of a text and its query: words, neighbours, letters, what both say, and the text's shape."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, pairwise
from math import log
from zlib import crc32

import numpy as np

from meristem.corpus.words import IDEOGRAPHS
from meristem.reinforce.clicks.matrix import Floats, Ints, Sparse, added

WORD = re.compile(f"[{IDEOGRAPHS}]|[^\\W{IDEOGRAPHS}]+(?:['’][^\\W{IDEOGRAPHS}]+)*|[^\\w\\s]")
RUN = re.compile(r"\w+|[^\w\s]+")
LETTERS = (2, 3, 4, 5)
LONGEST = 2000
"""Characters of a text that are looked at: beyond them nothing is shown to anybody."""
LONGEST_QUERY = 12
"""Words of a query that are crossed with those of the text."""
SAYS, CROSSES, SHAPES = 0.25, 0.1, 0.15
"""What a word that one of them says, a pair of their words and a step in shape count beside all words of a text."""
ENDS = 6
"""Words at a query's beginning and end that are told apart by their place."""
EXTREME = 3.0
"""Standard deviations beyond which a shape counts no more: nothing is known of such texts."""
COMMON = 0.1
"""Share of pairs in which text and query must have a word in common; else queries are names of tests."""

Pair = tuple[str, str]
Dense = Callable[[Sequence[str]], Floats]
"""Texts to vectors [texts, width]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The columns that a table has, with how rare each is and what shapes are usual in it."""

    ids: Ints
    """The columns by their hashes, in order."""
    rarity: Floats
    mean: Floats
    """Of each shape."""
    spread: Floats
    spoken: bool
    """Whether queries are words, rather than names of tests."""
    dense: Dense | None = None

    @classmethod
    def learned(cls, pairs: Sequence[Pair], query: Ints, dense: Dense | None = None) -> tuple[Features, Sparse]:
        """The columns that texts of at least two queries have, and the matrix of these."""
        shared = np.mean([bool(set(words(said)) & set(words(text))) for said, text in pairs])
        none = np.zeros(0)
        features = cls(ids=none.astype(np.int64), rarity=none, mean=none, spread=none, spoken=bool(shared > COMMON),
                       dense=dense)  # fmt: skip
        blocks = [features._blocks(pair) for pair in pairs]
        texts: Counter[int] = Counter()
        queries: Counter[int] = Counter()
        last: dict[int, int] = {}
        for number, some in zip(query.tolist(), blocks, strict=True):
            for key in set().union(*some):
                texts[key] += 1
                queries[key] += last.get(key) != number  # pairs come query by query
                last[key] = number
        kept = sorted(key for key, count in queries.items() if count > 1)
        often = np.array([texts[key] for key in kept], dtype=np.float64)
        shapes = features._shapes(pairs)
        spread = shapes.std(0)
        features = replace(features, ids=np.array(kept, dtype=np.int64), mean=shapes.mean(0),
                           rarity=1 + np.log((1 + len(pairs)) / (1 + often)),
                           spread=np.where(spread < 1e-9, np.inf, spread))  # fmt: skip
        return features, features._matrix(blocks, shapes)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.ids) + len(self.mean)

    def __call__(self, pairs: Sequence[Pair]) -> Sparse:
        """The matrix of these queries and texts."""
        return self._matrix([self._blocks(pair) for pair in pairs], self._shapes(pairs))

    def _matrix(self, blocks: Sequence[list[dict[int, float]]], shapes: Floats) -> Sparse:
        """Known words and letters of each text, then its shape."""
        flat = [block for some in blocks for block in some]
        keys = np.fromiter((key for block in flat for key in block), dtype=np.int64)
        value = np.fromiter((value for block in flat for value in block.values()), dtype=np.float64)
        block = np.repeat(np.arange(len(flat)), [len(one) for one in flat])
        row = np.repeat(np.arange(len(blocks)), [len(some) for some in blocks])[block]
        at = np.minimum(np.searchsorted(self.ids, keys), max(len(self.ids) - 1, 0))
        there = self.ids[at] == keys if len(self.ids) else np.zeros(len(keys), dtype=bool)
        # Rare words and letters count more, and all of a text's words together 1, as all of its letters do.
        normed = np.array([number < 2 for some in blocks for number in range(len(some))], dtype=bool)[block]
        rarity = np.append(self.rarity, self.rarity.max(initial=1.0))[np.where(there, at, len(self.ids))]
        value = value * np.where(normed, rarity, 1.0)
        length = np.sqrt(added(block, value**2, len(flat)))[block]
        value = value / np.where(normed, length, 1.0)
        shapes = np.clip((shapes - self.mean) / self.spread, -EXTREME, EXTREME) * SHAPES
        places = np.arange(len(self.mean)) + len(self.ids)
        return Sparse(
            np.concatenate([row[there], np.repeat(np.arange(len(blocks)), len(places))]),
            np.concatenate([at[there], np.tile(places, len(blocks))]),
            np.concatenate([value[there], shapes.ravel()]),
            (len(blocks), self.width),
            added(row[~there], value[~there] ** 2, len(blocks)),
        )

    def _blocks(self, pair: Pair) -> list[dict[int, float]]:
        """Words with their neighbours and letters, each as 1 + log of its count; then what both texts say."""
        query, text = pair[0][:LONGEST], pair[1][:LONGEST]
        said = words(text)
        neighbours = map(" ".join, pairwise(said))
        blocks = [_counted([hashed("w", one) for one in chain(said, neighbours)]), _counted(letters(text))]
        return [*blocks, _both(words(query), said)] if self.spoken else blocks

    def _shapes(self, pairs: Sequence[Pair]) -> Floats:
        told = np.array([_shape(text[:LONGEST]) + _overlap(query[:LONGEST], text[:LONGEST]) for query, text in pairs])
        return told if self.dense is None else np.hstack([told, self.dense([text for _, text in pairs])])


def words(text: str) -> list[str]:
    """Lower-case words, ideographs and marks."""
    return WORD.findall(text[:LONGEST].lower())


def _counted(keys: Iterable[int]) -> dict[int, float]:
    return {key: 1 + log(count) if count > 1 else 1.0 for key, count in Counter(keys).items()}


def letters(text: str) -> list[int]:
    """Letters side by side, with the edges of the word or run of signs they are in."""
    return [key for run in RUN.findall(text.lower()) for key in _letters_of(run)]


@lru_cache(maxsize=1 << 16)
def _letters_of(run: str) -> tuple[int, ...]:
    edged = f" {run} "
    return tuple(hashed("c", edged[at : at + size]) for size in LETTERS for at in range(len(edged) - size + 1))


def _both(query: Sequence[str], text: Sequence[str]) -> dict[int, float]:
    """Which words of the query the text says or misses, by what stands before them and where they stand; which others
    it says; and which words of either stand against which."""
    asked, said = set(query), set(text)
    out: dict[int, float] = {}
    for at, word in enumerate(query):
        how = "said" if word in said else "missed"
        before = query[at - 1] if at else ""
        out[hashed(how, f"{before} _")] = SAYS
        if at < ENDS:
            out[hashed(how, f"+{at}")] = SAYS
        if len(query) - at <= ENDS:
            out[hashed(how, f"-{len(query) - at}")] = SAYS
    for before, word in zip(["", *text], text, strict=False):
        how = "both" if word in asked else "new"
        out[hashed(how, word)] = SAYS
        out[hashed(how, f"{before} {word}")] = SAYS
    for word in asked if len(query) <= LONGEST_QUERY else ():
        for other in said:
            out[hashed("cross", f"{word}\x1f{other}")] = CROSSES
    return out


@cache
def _seed(block: str) -> int:
    return crc32(block.encode())


@lru_cache(maxsize=1 << 17)
def hashed(block: str, key: str) -> int:
    """A number for what a block of features calls it, the same in every process."""
    return crc32(key.encode("utf-8", "surrogatepass"), _seed(block))


def _shape(text: str) -> list[float]:
    """Numbers that say nothing of what a text is about: its length, its marks, its capitals."""
    parts = text.split()
    count = max(len(parts), 1)
    said = words(text)
    marks = Counter(text)
    return [
        float(np.log1p(len(text))), float(np.log1p(len(said))), len(text) / 50, (len(text) / 50) ** 2,
        len(text) / count / 10, float(any(map(str.isdigit, text))), float(text[:1].isdigit()), float("?" in text),
        float("!" in text), float(marks['"'] + marks["“"] + marks["'"] > 1), float(":" in text), float("," in text),
        float("…" in text or "..." in text), float(text.rstrip().endswith((".", "。"))), marks["."] + marks["。"],
        sum(part[:1].isupper() for part in parts) / count, sum(part.isupper() and len(part) > 1 for part in parts),
        1 - len(set(said)) / max(len(said), 1), *_bins(len(said)),
    ]  # fmt: skip


def _bins(count: int) -> list[float]:
    """How many words there are, so that the right number can be neither small nor large."""
    return [float(low <= count < high) for low, high in ((0, 5), (5, 8), (8, 11), (11, 14), (14, 18), (18, 24))]


def _overlap(query: str, text: str) -> list[float]:
    """Shares of the query's words and neighbours that the text has, and of its words that the query has."""
    asked, said = words(query), words(text)
    pairs, told = set(pairwise(asked)), set(pairwise(said))
    return [
        len(set(asked) & set(said)) / max(len(set(asked)), 1),
        len(pairs & told) / max(len(pairs), 1),
        len(set(asked) & set(said)) / max(len(set(said)), 1),
    ]
