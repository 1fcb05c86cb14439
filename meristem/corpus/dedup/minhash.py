"""MinHash signatures of texts: 126 numbers per text that estimate the Jaccard similarity of two texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from meristem.config.settings import Settings, expand_switch
from meristem.data.text_units import HAN, KANA, SOUTHEAST_ASIAN, code_point_ranges

Signatures = NDArray[np.uint16]
"""[texts, NUM_HASHES]; the share of equal values of two texts estimates the Jaccard similarity of their shingles."""

NUM_HASHES = 126
MAX_SHINGLE_WORDS = 32
MATCH_DEVIATIONS = 2.25
"""Standard deviations by which the number of equal values may fall below the expected one at the threshold."""

MIN_BAND_RECALL = 0.98
"""Minimum probability that a pair exactly at the threshold shares a band."""

# Scripts that put no space between words: kana, ideographs, Thai, Lao, Khmer, Burmese. Each character is a word.
UNSPACED_RANGES = code_point_ranges(SOUTHEAST_ASIAN + KANA + HAN)
WORD_CHAR, SINGLE_CHAR_WORD = 1, 2


class MinHashSettings(Settings):
    """When two texts are near duplicates, and whether the later one is dropped."""

    jaccard: float = Field(default=0.8, ge=0.3, le=0.99)
    """Jaccard similarity of shingles from which two texts are near duplicates."""

    words: int = Field(default=5, ge=1, le=MAX_SHINGLE_WORDS)
    """Words per shingle; a Chinese character is a word."""

    memory_mb: int = Field(default=512, ge=1)
    """Memory for the index in MB; the rest is kept on disk. Never changes the result."""

    drop: bool = True
    """Drop near duplicates; false keeps them, in the same split as their original."""

    @property
    def min_matches(self) -> int:
        """Minimum number of equal values in two signatures."""
        deviation: float = (self.jaccard * (1 - self.jaccard) / NUM_HASHES) ** 0.5
        return round((self.jaccard - MATCH_DEVIATIONS * deviation) * NUM_HASHES)

    @property
    def rows_per_band(self) -> int:
        """Values per band (LSH rows): as many as possible while pairs at the threshold are found almost surely."""
        fitting: list[int] = [rows for rows in range(1, 15) if NUM_HASHES % rows == 0]
        return max(rows for rows in fitting if 1 - (1 - self.jaccard**rows) ** (NUM_HASHES // rows) >= MIN_BAND_RECALL)


NearDedupOption = Annotated[
    MinHashSettings | None, BeforeValidator(expand_switch, json_schema_input_type=MinHashSettings | bool | None)
]


def _odd_numbers(count: int, purpose: int) -> NDArray[np.uint64]:
    """Pseudo-random odd numbers, the same on every machine."""
    return splitmix64(np.arange(count, dtype=np.uint64) + np.uint64(purpose << 32)) | np.uint64(1)


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 hash of each value."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


POLYNOMIAL_BASE = 0x9FB21C651E98DF25  # odd, so that it has an inverse modulo 2⁶⁴
BASE_INVERSE = pow(POLYNOMIAL_BASE, -1, 1 << 64)
SHINGLE_FACTORS = _odd_numbers(MAX_SHINGLE_WORDS, 1)
HASH_MULTIPLIERS = (_odd_numbers(NUM_HASHES, 2) >> np.uint64(31)).astype(np.uint32) | np.uint32(1)
HASH_OFFSETS = (_odd_numbers(NUM_HASHES, 3) >> np.uint64(32)).astype(np.uint32)
BAND_FACTORS = _odd_numbers(NUM_HASHES, 4)


@cache
def _character_kinds() -> NDArray[np.uint8]:
    """For every code point whether it is part of a word, and whether it is a word by itself."""
    kinds = np.zeros(0x110000, np.uint8)
    all_chars = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for match in re.finditer(r"[^\W_]+", all_chars):
        kinds[match.start() : match.end()] = WORD_CHAR
    for first, last in UNSPACED_RANGES:
        kinds[first : last + 1][kinds[first : last + 1] == WORD_CHAR] = SINGLE_CHAR_WORD
    return kinds


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """1, base, base², … modulo 2⁶⁴."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


def minhash_signatures(texts: Sequence[str], shingle_words: int = 5) -> Signatures:
    """[texts, NUM_HASHES]: the signature of each text; ignores shingle order, case and what is between words."""
    if not texts:
        return np.zeros((0, NUM_HASHES), np.uint16)
    hashes, bounds = _shingles(texts, shingle_words)
    minima = np.empty((NUM_HASHES, len(texts)), np.uint32)
    permuted = np.empty_like(hashes)
    for row, multiplier, offset in zip(minima, HASH_MULTIPLIERS, HASH_OFFSETS, strict=True):
        np.multiply(hashes, multiplier, out=permuted)
        np.add(permuted, offset, out=permuted)
        np.minimum.reduceat(permuted, bounds[:-1], out=row)
    return np.ascontiguousarray(minima.T.astype(np.uint16))  # low halves: the high bits of a minimum are mostly zero


def _shingles(texts: Sequence[str], shingle_words: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The hashes of all shingles, text after text, and the bounds of each text's; every text has at least one.

    All texts are processed as one array of characters: a word's hash is a difference of two prefix sums of a
    polynomial.
    """
    lowered = [text.lower() for text in texts]
    codes = np.frombuffer("\n".join(lowered).encode("utf-32-le", "surrogatepass"), np.uint32)
    edges = np.cumsum([0, *(len(text) + 1 for text in lowered)])  # a newline follows each text
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * _powers(POLYNOMIAL_BASE, len(codes)), dtype=np.uint64, out=sums[1:])
    starts, ends = _word_bounds(_character_kinds()[codes])
    inverses = _powers(BASE_INVERSE, len(codes) + 1)
    hashes = splitmix64((sums[ends] - sums[starts]) * inverses[starts])
    firsts = np.searchsorted(starts, edges)
    shingles = _join_words(hashes, firsts, shingle_words)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(np.diff(firsts) - shingle_words + 1, 1))])
    empty = np.flatnonzero(np.diff(firsts) == 0)  # no words: all symbols together are its only shingle
    symbol_hashes = splitmix64((sums[edges[empty + 1] - 1] - sums[edges[empty]]) * inverses[edges[empty]])
    shingles = np.insert(shingles, bounds[empty] - np.arange(len(empty)), symbol_hashes)
    return (shingles >> np.uint64(32)).astype(np.uint32), bounds


def _word_bounds(kinds: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where words begin and end."""
    letter = np.zeros(len(kinds) + 2, bool)
    letter[1:-1] = kinds == WORD_CHAR
    alone = kinds == SINGLE_CHAR_WORD
    starts = np.flatnonzero(alone | (letter[1:-1] & ~letter[:-2]))
    ends = np.flatnonzero(alone | (letter[1:-1] & ~letter[2:])) + 1
    return starts, ends


def _join_words(hashes: NDArray[np.uint64], firsts: NDArray[np.int64], shingle_words: int) -> NDArray[np.uint64]:
    """The hashes of `shingle_words` consecutive words; a shorter text gives one hash of all its words."""
    counts = np.diff(firsts)
    last = np.repeat(firsts[1:], counts)  # for each word, the end of its text
    positions = np.arange(len(hashes))
    is_start = (positions + shingle_words <= last) | (positions == np.repeat(firsts[:-1], counts))
    positions, last = positions[is_start], last[is_start]
    shingles = np.zeros(len(positions), np.uint64)
    padded = np.concatenate([hashes, np.zeros(shingle_words, np.uint64)])
    for step in range(shingle_words):
        shingles += np.where(positions + step < last, padded[positions + step] * SHINGLE_FACTORS[step], np.uint64(0))
    return splitmix64(shingles)


def band_keys(signatures: Signatures, rows_per_band: int) -> NDArray[np.uint64]:
    """[texts, bands]: two texts share a key if their signatures agree in a whole band."""
    bands = NUM_HASHES // rows_per_band
    weighted = signatures.astype(np.uint64) * BAND_FACTORS
    summed: NDArray[np.uint64] = weighted.reshape(len(signatures), bands, rows_per_band).sum(axis=2, dtype=np.uint64)
    return splitmix64(summed)
