"""Segmentation lattices for the Unigram tokenizer: forward-backward counts and best segmentations of many words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class LatticeEdge:
    """The span [start, stop), and the words of one length that have a known piece there."""

    start: int
    stop: int
    rows: Indices
    pieces: Indices


@dataclass(frozen=True)
class LengthBlock:
    """The words of one length."""

    words: Indices
    length: int
    edges: list[LatticeEdge]
    """Sorted by `stop`, so that earlier positions are complete."""


class UnigramLattice:
    """Words as graphs whose edges are pieces; words are short enough for probabilities not to underflow."""

    def __init__(self, words: Sequence[str], pieces: Mapping[str, int], max_piece_length: int) -> None:
        self.num_words, self.num_pieces = len(words), len(pieces)
        lengths = np.array([len(word) for word in words])
        self._blocks = [
            self._build_block(words, np.flatnonzero(lengths == length), int(length), pieces, max_piece_length)
            for length in np.unique(lengths)
        ]

    def _build_block(
        self, words: Sequence[str], word_indices: Indices, length: int, pieces: Mapping[str, int], max_piece_length: int
    ) -> LengthBlock:
        edges = []
        for stop in range(1, length + 1):
            for start in range(max(0, stop - max_piece_length), stop):
                piece_ids = np.array([pieces.get(words[word][start:stop], -1) for word in word_indices], np.int64)
                rows = np.flatnonzero(piece_ids >= 0)
                if len(rows):
                    edges.append(LatticeEdge(start, stop, rows, piece_ids[rows]))
        return LengthBlock(word_indices, length, edges)

    def expected_counts(self, probs: Floats, counts: Floats) -> Floats:
        """Expected count of each piece over all segmentations of the words (the E-step)."""
        expected = np.zeros(self.num_pieces)
        for block in self._blocks:
            forward_probs = np.zeros((block.length + 1, len(block.words)))  # of all segmentations up to a position
            backward_probs = np.zeros_like(forward_probs)
            forward_probs[0] = backward_probs[-1] = 1
            for edge in block.edges:
                forward_probs[edge.stop, edge.rows] += forward_probs[edge.start, edge.rows] * probs[edge.pieces]
            for edge in reversed(_sort_by_start(block.edges)):
                backward_probs[edge.start, edge.rows] += backward_probs[edge.stop, edge.rows] * probs[edge.pieces]
            share = counts[block.words] / forward_probs[-1]
            for edge in block.edges:
                used = forward_probs[edge.start, edge.rows] * probs[edge.pieces] * backward_probs[edge.stop, edge.rows]
                expected += np.bincount(edge.pieces, used * share[edge.rows], self.num_pieces)
        return expected

    def best_split_probs(self, probs: Floats) -> Floats:
        """For each word the probability of its best segmentation into at least two pieces."""
        best_probs = np.zeros(self.num_words)
        for block in self._blocks:
            best = np.zeros((block.length + 1, len(block.words)))
            best[0] = 1
            for edge in block.edges:
                if edge.stop - edge.start < block.length:
                    reached = best[edge.start, edge.rows] * probs[edge.pieces]
                    best[edge.stop, edge.rows] = np.maximum(best[edge.stop, edge.rows], reached)
            best_probs[block.words] = best[-1]
        return best_probs


def _sort_by_start(edges: list[LatticeEdge]) -> list[LatticeEdge]:
    return sorted(edges, key=lambda edge: edge.start)
