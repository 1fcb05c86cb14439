"""All ways to cut many words into pieces at once: expected counts, and the best cutting without the word itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """One piece length at one start, for the words of a length that hold a known piece there."""

    start: int
    stop: int
    rows: Indices
    pieces: Indices


@dataclass(frozen=True)
class Block:
    """The words of one length."""

    words: Indices
    length: int
    steps: list[Step]
    """By their end, so that what comes before is complete."""


class Lattice:
    """Words as graphs whose edges are pieces; probabilities are plain, as words are short enough not to underflow."""

    def __init__(self, words: Sequence[str], pieces: Mapping[str, int], longest: int) -> None:
        self.size, self.count = len(words), len(pieces)
        lengths = np.array([len(word) for word in words])
        self._blocks = [self._block(words, np.flatnonzero(lengths == length), int(length), pieces, longest)
                        for length in np.unique(lengths)]

    def _block(self, words: Sequence[str], chosen: Indices, length: int, pieces: Mapping[str, int],
               longest: int) -> Block:
        steps = []
        for stop in range(1, length + 1):
            for start in range(max(0, stop - longest), stop):
                found = np.array([pieces.get(words[word][start:stop], -1) for word in chosen], np.int64)
                rows = np.flatnonzero(found >= 0)
                if len(rows):
                    steps.append(Step(start, stop, rows, found[rows]))
        return Block(chosen, length, steps)

    def expected(self, chance: Numbers, counts: Numbers) -> Numbers:
        """How often each piece is used, over all cuttings weighted by their probability (the E-step)."""
        out = np.zeros(self.count)
        for block in self._blocks:
            ahead = np.zeros((block.length + 1, len(block.words)))  # probability of all cuttings up to a place
            behind = np.zeros_like(ahead)
            ahead[0] = behind[-1] = 1
            for step in block.steps:
                ahead[step.stop, step.rows] += ahead[step.start, step.rows] * chance[step.pieces]
            for step in reversed(_by_start(block.steps)):
                behind[step.start, step.rows] += behind[step.stop, step.rows] * chance[step.pieces]
            share = counts[block.words] / ahead[-1]
            for step in block.steps:
                used = ahead[step.start, step.rows] * chance[step.pieces] * behind[step.stop, step.rows]
                out += np.bincount(step.pieces, used * share[step.rows], self.count)
        return out

    def best_parts(self, chance: Numbers) -> Numbers:
        """Word → the probability of its best cutting into smaller pieces."""
        out = np.zeros(self.size)
        for block in self._blocks:
            best = np.zeros((block.length + 1, len(block.words)))
            best[0] = 1
            for step in block.steps:
                if step.stop - step.start < block.length:
                    reached = best[step.start, step.rows] * chance[step.pieces]
                    best[step.stop, step.rows] = np.maximum(best[step.stop, step.rows], reached)
            out[block.words] = best[-1]
        return out


def _by_start(steps: list[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: step.start)
