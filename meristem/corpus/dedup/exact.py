"""Exact deduplication by a 128-bit digest of the cleaned text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_RECENT = 1 << 18
"""Digests kept in a Python set before they are packed."""


def text_digest(text: str) -> bytes:
    """A 16-byte digest of a text: among 10¹² documents, the probability of a collision is 10⁻¹⁵."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class DigestSet:
    """The digests seen so far.

    Packed into sorted runs, a million of them take 16 MB (a Python set: about 100 MB). Runs double in size, so that
    there are only a handful to search; the newest digests stay in a set of at most 27 MB.
    """

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[NDArray[np.bytes_]] = []

    def add_new(self, digests: Sequence[bytes]) -> list[bool]:
        """For each digest whether it is new; adds all of them."""
        new_flags = []
        for digest, known in zip(digests, self._in_runs(digests), strict=True):
            is_new = not known and digest not in self._recent
            if is_new:
                self._recent.add(digest)
            new_flags.append(is_new)
        if len(self._recent) >= MAX_RECENT:
            self._pack_recent()
        return new_flags

    def add_known(self, digests: NDArray[np.bytes_]) -> None:
        """Add digests from an earlier pass, all distinct."""
        self._add_run(np.sort(digests))

    def _in_runs(self, digests: Sequence[bytes]) -> Sequence[bool]:
        known = np.zeros(len(digests), dtype=bool)
        queries = np.frombuffer(b"".join(digests), dtype="S16")
        for run in self._runs:
            positions = np.minimum(np.searchsorted(run, queries), len(run) - 1)
            known |= run[positions] == queries
        return known.tolist()

    def _pack_recent(self) -> None:
        run = np.sort(np.frombuffer(b"".join(self._recent), dtype="S16"))
        self._recent.clear()
        self._add_run(run)

    def _add_run(self, run: NDArray[np.bytes_]) -> None:
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)
