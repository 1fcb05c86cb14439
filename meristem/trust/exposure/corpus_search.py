"""Exact search for token sequences in the training text: rolling hashes of all windows, then a comparison of tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meristem.corpus.dedup.minhash import BASE_INVERSE, POLYNOMIAL_BASE
from meristem.dataset.token_dataset import IntArray, TokenStream

CHUNK_TOKENS = 1 << 21
"""Tokens searched at once: 100 MB of memory."""
MAX_POSITIONS = 3
"""Positions kept of each sequence; all are counted."""


@dataclass
class Occurrences:
    """Where a sequence stands in a stream."""

    count: int = 0
    positions: list[int] = field(default_factory=list)
    """The first few, as positions in the stream."""


def find_sequences(stream: TokenStream, sequences: Sequence[IntArray]) -> list[Occurrences]:
    """The occurrences of each sequence, overlapping ones included; an empty sequence has none.

    Windows with the hash of a sequence are compared token by token, so that there are no false ones.
    """
    occurrences = [Occurrences() for _ in sequences]
    by_length: dict[int, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, sequence in enumerate(sequences):
        if len(sequence):
            by_length[len(sequence)][tuple(sequence.tolist())].append(index)
    for length, wanted in by_length.items():
        table = _HashTable(list(wanted), length)
        for start in range(0, len(stream) - length + 1, CHUNK_TOKENS):
            tokens = stream.tokens(start, min(len(stream), start + CHUNK_TOKENS + length - 1))
            for position, sequence_tokens in table.find(tokens):
                for index in wanted[sequence_tokens]:
                    occurrences[index].count += 1
                    if len(occurrences[index].positions) < MAX_POSITIONS:
                        occurrences[index].positions.append(start + position)
    return occurrences


class _HashTable:
    """Sequences of one length by their polynomial hash modulo 2⁶⁴."""

    def __init__(self, sequences: Sequence[tuple[int, ...]], length: int) -> None:
        self._length = length
        hashes = [int(_window_hashes(np.array(sequence, np.int64), length)[0]) for sequence in sequences]
        self._by_hash: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for sequence_hash, sequence in zip(hashes, sequences, strict=True):
            self._by_hash[sequence_hash].append(sequence)
        self._sorted_hashes = np.sort(np.array(list(self._by_hash), np.uint64))

    def find(self, tokens: IntArray) -> list[tuple[int, tuple[int, ...]]]:
        """(position, sequence) of every window of the tokens that is one of the sequences."""
        hashes = _window_hashes(tokens, self._length)
        nearest = np.searchsorted(self._sorted_hashes, hashes).clip(max=len(self._sorted_hashes) - 1)
        positions = np.flatnonzero(self._sorted_hashes[nearest] == hashes)
        windows = ((position, tuple(tokens[position : position + self._length].tolist())) for position in positions)
        return [
            (int(position), window) for position, window in windows if window in self._by_hash[int(hashes[position])]
        ]


def _window_hashes(tokens: IntArray, length: int) -> NDArray[np.uint64]:
    """Σ t[i + k] · B^k modulo 2⁶⁴ of each window, from prefix sums of t[i] · B^i."""
    powers = _powers(POLYNOMIAL_BASE, len(tokens))
    sums = np.zeros(len(tokens) + 1, np.uint64)
    np.cumsum((tokens.astype(np.uint64) + np.uint64(1)) * powers, out=sums[1:])
    differences: NDArray[np.uint64] = sums[length:] - sums[:-length]
    return differences * _powers(BASE_INVERSE, len(differences))


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)
