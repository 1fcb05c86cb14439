"""A text longer than the model: windows that overlap, and which of them knows a place best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


def windows(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """First token and the one after the last of each window: full ones, at most `stride` apart, up to the very end."""
    if tokens <= room:
        return [(0, tokens)]
    starts = [*range(0, tokens - room, min(stride, room)), tokens - room]
    return [(start, start + room) for start in starts]


def inmost(places: Places, spans: list[tuple[int, int]]) -> Places:
    """For each token the window in which it is farthest from an edge that cuts the text; the first of equals."""
    if len(spans) == 1:
        return np.zeros(len(places), np.int64)
    first, last = np.array(spans, np.int64).T[:, :, None]
    far = last.max() + 1  # the text's own ends cut nothing off
    ahead = np.where(first == 0, far, places - first)
    behind = np.where(last == last.max(), far, last - 1 - places)
    inside = (places >= first) & (places < last)
    owner: Places = np.where(inside, np.minimum(ahead, behind), -1).argmax(0)
    return owner
