"""Sliding windows over texts longer than the model, and the window with the most context for each token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


def sliding_windows(num_tokens: int, max_tokens: int, stride: int) -> list[tuple[int, int]]:
    """(start, stop) of each window: full windows, at most `stride` tokens apart, up to the end of the text."""
    if num_tokens <= max_tokens:
        return [(0, num_tokens)]
    starts = [*range(0, num_tokens - max_tokens, min(stride, max_tokens)), num_tokens - max_tokens]
    return [(start, start + max_tokens) for start in starts]


def innermost_window(positions: Positions, window_spans: list[tuple[int, int]]) -> Positions:
    """For each token the index of the window in which it is farthest from an inner edge; the first if tied."""
    if len(window_spans) == 1:
        return np.zeros(len(positions), np.int64)
    first, last = np.array(window_spans, np.int64).T[:, :, None]
    far = last.max() + 1  # the ends of the text itself cut off no context
    ahead = np.where(first == 0, far, positions - first)
    behind = np.where(last == last.max(), far, last - 1 - positions)
    inside = (positions >= first) & (positions < last)
    owner: Positions = np.where(inside, np.minimum(ahead, behind), -1).argmax(0)
    return owner
