"""Signatures of texts: how alike two texts are can be told from 126 small numbers of each (MinHash)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from meristem.settings import Settings

Signatures = NDArray[np.uint16]
"""A row of VALUES numbers for each text; two texts agree in about as many as the Jaccard index of their shingles."""

VALUES = 126
LONGEST_SHINGLE = 32
SPREAD = 2.25
"""Standard deviations by which the agreement of two texts may fall short of their likeness."""

CAUGHT = 0.98
"""The least share of pairs just at the threshold of which some band must agree."""

# Scripts that put no space between words: kana, ideographs, Thai, Lao, Khmer, Burmese. Each character is a word.
UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3040, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
LETTER, ALONE = 1, 2


class NearSettings(Settings):
    """When two texts are nearly the same, and what becomes of the later one."""

    jaccard: float = Field(default=0.8, ge=0.3, le=0.99)
    """The share of shingles two texts have in common, from which on they count as nearly the same."""

    words: int = Field(default=5, ge=1, le=LONGEST_SHINGLE)
    """Words in a shingle; an ideograph is a word."""

    memory_mb: int = Field(default=512, ge=1)
    """Memory for the index of what was met; what does not fit lies on disk. Never changes the result."""

    drop: bool = True
    """Drop near duplicates; false keeps them, in the same split as the first of their kind."""

    @property
    def agreement(self) -> int:
        """Values of two signatures that must be the same."""
        deviation: float = (self.jaccard * (1 - self.jaccard) / VALUES) ** 0.5
        return round((self.jaccard - SPREAD * deviation) * VALUES)

    @property
    def rows(self) -> int:
        """Values in a band: as many as possible while a pair at the threshold is (almost) surely met."""
        fitting: list[int] = [rows for rows in range(1, 15) if VALUES % rows == 0]
        return max(rows for rows in fitting if 1 - (1 - self.jaccard**rows) ** (VALUES // rows) >= CAUGHT)


def _switched(value: Any) -> Any:
    """`true` stands for the defaults, `false` for nothing."""
    return ({} if value else None) if isinstance(value, bool) else value


Nearness = Annotated[NearSettings | None, BeforeValidator(_switched, json_schema_input_type=NearSettings | bool | None)]


def _random(count: int, purpose: int) -> NDArray[np.uint64]:
    """Odd numbers, the same on every machine."""
    return mixed(np.arange(count, dtype=np.uint64) + np.uint64(purpose << 32)) | np.uint64(1)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of each number spread over all of them (the finaliser of splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


BASE = 0x9FB21C651E98DF25  # odd, so that it has an inverse modulo 2⁶⁴
INVERSE = pow(BASE, -1, 1 << 64)
FACTORS = _random(LONGEST_SHINGLE, 1)
MULTIPLIERS = (_random(VALUES, 2) >> np.uint64(31)).astype(np.uint32) | np.uint32(1)
OFFSETS = (_random(VALUES, 3) >> np.uint64(32)).astype(np.uint32)
BAND_FACTORS = _random(VALUES, 4)


@cache
def _kinds() -> NDArray[np.uint8]:
    """For every code point whether it belongs to a word, and whether it is one by itself."""
    kinds = np.zeros(0x110000, np.uint8)
    every = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for match in re.finditer(r"[^\W_]+", every):
        kinds[match.start() : match.end()] = LETTER
    for first, last in UNSPACED:
        kinds[first : last + 1][kinds[first : last + 1] == LETTER] = ALONE
    return kinds


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """1, base, base², … modulo 2⁶⁴."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


def signatures(texts: Sequence[str], words: int = 5) -> Signatures:
    """The signature of each text; order, letter case and whatever stands between words leave no trace."""
    if not texts:
        return np.zeros((0, VALUES), np.uint16)
    hashes, bounds = _shingles(texts, words)
    made = np.empty((VALUES, len(texts)), np.uint32)
    ordered = np.empty_like(hashes)
    for row, multiplier, offset in zip(made, MULTIPLIERS, OFFSETS, strict=True):
        np.multiply(hashes, multiplier, out=ordered)
        np.add(ordered, offset, out=ordered)
        np.minimum.reduceat(ordered, bounds[:-1], out=row)
    return np.ascontiguousarray(made.T.astype(np.uint16))  # low halves: the high ones of a minimum are mostly zero


def _shingles(texts: Sequence[str], words: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The hashes of all shingles, text after text, and where each text's begin; every text has at least one.

    All texts are taken as one array of characters: a word's hash is the difference of two sums of a polynomial.
    """
    lowered = [text.lower() for text in texts]
    codes = np.frombuffer("\n".join(lowered).encode("utf-32-le", "surrogatepass"), np.uint32)
    edges = np.cumsum([0, *(len(text) + 1 for text in lowered)])  # a line end stands after each text
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * _powers(BASE, len(codes)), dtype=np.uint64, out=sums[1:])
    starts, ends = _word_bounds(_kinds()[codes])
    inverses = _powers(INVERSE, len(codes) + 1)
    hashes = mixed((sums[ends] - sums[starts]) * inverses[starts])
    firsts = np.searchsorted(starts, edges)
    made = _joined(hashes, firsts, words)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(np.diff(firsts) - words + 1, 1))])
    empty = np.flatnonzero(np.diff(firsts) == 0)  # nothing but signs: they are the text's one shingle
    signs = mixed((sums[edges[empty + 1] - 1] - sums[edges[empty]]) * inverses[edges[empty]])
    made = np.insert(made, bounds[empty] - np.arange(len(empty)), signs)
    return (made >> np.uint64(32)).astype(np.uint32), bounds


def _word_bounds(kinds: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where words begin and end."""
    letter = np.zeros(len(kinds) + 2, bool)
    letter[1:-1] = kinds == LETTER
    alone = kinds == ALONE
    starts = np.flatnonzero(alone | (letter[1:-1] & ~letter[:-2]))
    ends = np.flatnonzero(alone | (letter[1:-1] & ~letter[2:])) + 1
    return starts, ends


def _joined(hashes: NDArray[np.uint64], firsts: NDArray[np.int64], words: int) -> NDArray[np.uint64]:
    """The hashes of `words` words in a row; a text with fewer gives one hash of all it has."""
    counts = np.diff(firsts)
    last = np.repeat(firsts[1:], counts)  # for each word the end of its text
    at = np.arange(len(hashes))
    whole = (at + words <= last) | (at == np.repeat(firsts[:-1], counts))
    at, last = at[whole], last[whole]
    made = np.zeros(len(at), np.uint64)
    padded = np.concatenate([hashes, np.zeros(words, np.uint64)])
    for step in range(words):
        made += np.where(at + step < last, padded[at + step] * FACTORS[step], np.uint64(0))
    return mixed(made)


def band_keys(made: Signatures, rows: int) -> NDArray[np.uint64]:
    """[texts, bands]: two texts share a key where their signatures agree in a whole band."""
    bands = VALUES // rows
    weighed = made.astype(np.uint64) * BAND_FACTORS
    summed: NDArray[np.uint64] = weighed.reshape(len(made), bands, rows).sum(axis=2, dtype=np.uint64)
    return mixed(summed)
