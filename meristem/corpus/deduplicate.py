"""Exact duplicates, found by a 128-bit digest of the cleaned text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RECENT = 1 << 18
"""Digests held in a Python set before they are packed."""


def digest(text: str) -> bytes:
    """Sixteen bytes that stand for a text: a chance collision among 10¹² documents has odds of 10⁻¹⁵."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class Seen:
    """The digests met so far.

    Packed into sorted runs a million of them cost 16 MB (a Python set: about 100 MB); runs double in size,
    so that there are only a handful to search, and the newest stay in a set of at most 27 MB.
    """

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[NDArray[np.bytes_]] = []

    def new(self, digests: Sequence[bytes]) -> list[bool]:
        """For each digest whether it is met for the first time; afterwards all of them have been."""
        fresh = []
        for digest, known in zip(digests, self._packed(digests), strict=True):
            is_new = not known and digest not in self._recent
            if is_new:
                self._recent.add(digest)
            fresh.append(is_new)
        if len(self._recent) >= RECENT:
            self._pack()
        return fresh

    def know(self, digests: NDArray[np.bytes_]) -> None:
        """Take in digests that an earlier pass met, no two the same."""
        self._add(np.sort(digests))

    def _packed(self, digests: Sequence[bytes]) -> Sequence[bool]:
        known = np.zeros(len(digests), dtype=bool)
        asked = np.frombuffer(b"".join(digests), dtype="S16")
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, asked), len(run) - 1)
            known |= run[at] == asked
        return known.tolist()

    def _pack(self) -> None:
        run = np.sort(np.frombuffer(b"".join(self._recent), dtype="S16"))
        self._recent.clear()
        self._add(run)

    def _add(self, run: NDArray[np.bytes_]) -> None:
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)
