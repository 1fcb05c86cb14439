"""Pieces of labelled samples as batches of like lengths: little padding, and still a function of (seed, step) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meristem.batch import Draws, Row
from meristem.learning.feed import Feed
from meristem.randomness import Order, generator
from meristem.task import Piece

WINDOW = 64
"""Batches within which pieces are put beside others of their length."""


class Pieces:
    """A view on pieces that are all in memory."""

    def __init__(self, pieces: Sequence[Piece], *, shuffled: bool = True) -> None:
        self.pieces, self.shuffled = pieces, shuffled
        self.sizes: NDArray[np.int64] = np.array([piece.size for piece in pieces], np.int64)

    def __len__(self) -> int:
        return len(self.pieces)

    def row(self, index: int, draw: Draws) -> Row:
        """Nothing but the piece: the task makes the row."""
        return Row(inputs={}, notes={"piece": self.pieces[index]}, sample=index)


@dataclass(frozen=True, kw_only=True)
class Ragged(Feed):
    """Batches of `rows` pieces, each step's of like lengths.

    The keyed order of an epoch is cut into windows of 64 steps; inside one, pieces are sorted by length, dealt to the
    steps in a drawn order, and so every piece still comes once in an epoch.
    """

    def _places(self, first: int, number: int, size: int) -> Iterator[tuple[int, int]]:
        while number:
            epoch, start = divmod(first, size)
            window = start // (WINDOW * self.rows)
            begin = window * WINDOW * self.rows
            dealt = self._dealt(epoch, begin, min(size, begin + WINDOW * self.rows), size)
            part = min(number, len(dealt) - (start - begin))
            yield from ((epoch, int(index)) for index in dealt[start - begin : start - begin + part])
            first, number = first + part, number - part

    def _dealt(self, epoch: int, begin: int, end: int, size: int) -> NDArray[np.int64]:
        """Which piece stands at each position of a window."""
        view = self.view
        assert isinstance(view, Pieces)
        return _dealt(view, self.seed, epoch, begin, end, size, self.rows)


@lru_cache(maxsize=8)
def _dealt(view: Pieces, seed: int, epoch: int, begin: int, end: int, size: int, rows: int) -> NDArray[np.int64]:
    positions = np.arange(begin, end)
    pieces = Order(size, seed, epoch)(positions).astype(np.int64) if view.shuffled else positions
    by_size = pieces[np.argsort(view.sizes[pieces], kind="stable")]
    step = (epoch * size + positions) // rows  # a step may have begun in the epoch before
    _, counts = np.unique(step, return_counts=True)
    turn = (
        generator(seed, "lengths", epoch, begin).permutation(len(counts)) if view.shuffled else np.arange(len(counts))
    )
    out = np.empty(len(positions), np.int64)
    ends, taken = np.cumsum(counts), 0
    for number in turn:  # one step after the other takes the next longer pieces
        out[ends[number] - counts[number] : ends[number]] = by_size[taken : taken + counts[number]]
        taken += counts[number]
    return out


def groups(pieces: Sequence[Piece], tokens: int) -> Iterator[list[int]]:
    """Places of pieces, by length, as many together as are so many tokens with their padding."""
    some: list[int] = []
    for number in sorted(range(len(pieces)), key=lambda number: pieces[number].size):
        if some and (len(some) + 1) * pieces[number].size > tokens:
            yield some
            some = []
        some.append(number)
    if some:
        yield some
