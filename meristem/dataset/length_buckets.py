"""Length bucketing: batches of samples of similar length, so with little padding; a function of (seed, step) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meristem.dataset.dataset_view import DatasetView
from meristem.dataset.feed import Feed
from meristem.inputs.batch import Row
from meristem.interfaces.sample import SamplePiece
from meristem.utils.randomness import KeyedPermutation, SampleRng, generator

WINDOW_STEPS = 64
"""Steps per window; samples are sorted by length within a window."""


class PieceView(DatasetView):
    """A view of pieces (tokenized parts of labelled samples) that are all in memory."""

    def __init__(self, pieces: Sequence[SamplePiece], *, shuffled: bool = True) -> None:
        self.pieces, self.shuffled = pieces, shuffled
        self.lengths: NDArray[np.int64] = np.array([piece.num_tokens for piece in pieces], np.int64)

    def __len__(self) -> int:
        return len(self.pieces)

    def row(self, index: int, draw: SampleRng) -> Row:
        """A row that only contains the piece; the task turns it into model inputs."""
        return Row(inputs={}, metadata={"piece": self.pieces[index]}, sample_id=index)


@dataclass(frozen=True, kw_only=True)
class LengthBucketedFeed(Feed):
    """Batches of `batch_size` pieces of similar length.

    The shuffled order of an epoch is cut into windows of 64 steps. Inside a window, pieces are sorted by length and
    assigned to the steps in a random order, so every piece still occurs once per epoch.
    """

    def _epoch_indices(self, first: int, count: int, size: int) -> Iterator[tuple[int, int]]:
        while count:
            epoch, start = divmod(first, size)
            window_size = WINDOW_STEPS * self.batch_size
            window_start = start // window_size * window_size
            order = self._bucketed_order(epoch, window_start, min(size, window_start + window_size), size)
            chunk = order[start - window_start :][:count]
            yield from ((epoch, int(index)) for index in chunk)
            first, count = first + len(chunk), count - len(chunk)

    def _bucketed_order(self, epoch: int, begin: int, end: int, size: int) -> NDArray[np.int64]:
        """The piece at each position of a window."""
        view = self.view
        assert isinstance(view, PieceView)
        return _bucketed_window(view, self.seed, epoch, begin, end, size, self.batch_size)


@lru_cache(maxsize=8)
def _bucketed_window(
    view: PieceView, seed: int, epoch: int, begin: int, end: int, size: int, batch_size: int
) -> NDArray[np.int64]:
    positions = np.arange(begin, end)
    pieces = KeyedPermutation(size, seed, epoch)(positions).astype(np.int64) if view.shuffled else positions
    by_size = pieces[np.argsort(view.lengths[pieces], kind="stable")]
    step = (epoch * size + positions) // batch_size  # a step may have started in the previous epoch
    _, counts = np.unique(step, return_counts=True)
    step_order = np.arange(len(counts))
    if view.shuffled:
        step_order = generator(seed, "lengths", epoch, begin).permutation(len(counts))
    parts = np.split(by_size, np.cumsum(counts[step_order])[:-1])  # each step takes the next longer pieces
    return np.concatenate([parts[index] for index in np.argsort(step_order)])


def length_batches(
    sizes: Sequence[int],
    *,
    max_tokens: int | None = None,
    max_rows: int | None = None,
    max_difference: int | None = None,
) -> Iterator[list[int]]:
    """Indices sorted by size, in batches of at most `max_tokens` tokens with padding, and `max_rows` rows.

    The sizes in a batch differ by at most `max_difference`. One row always fits.
    """
    batch: list[int] = []
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        size = sizes[index]
        if batch and (
            (max_tokens is not None and (len(batch) + 1) * size > max_tokens)
            or (max_rows is not None and len(batch) >= max_rows)
            or (max_difference is not None and size - sizes[batch[0]] > max_difference)
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
