"""Which text was met before, or one nearly the same: bands of signatures looked up, agreement counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.corpus.growing import BLOCK, Growing
from meristem.corpus.near import VALUES, NearSettings, Signatures, band_keys
from meristem.corpus.runs import Runs

CANDIDATES = 64
"""Earlier texts a text is compared with at most: those it shares the most bands with."""

Numbers = NDArray[np.int64]


class Near:
    """The texts met so far that were like none before them.

    Their signatures lie in a file that only grows; the bands are made from it, so that the file and the number of its
    rows are all there is to keep for going on later.
    """

    def __init__(self, settings: NearSettings, folder: Path, *, count: int = 0) -> None:
        self._settings = settings
        folder.mkdir(parents=True, exist_ok=True)
        self.signatures = Growing(folder / "signatures", "<u2", VALUES, count=count)
        self._runs = Runs(folder / "bands", settings.memory_mb << 20)
        for start in range(0, count, BLOCK):
            self._add(self.signatures.rows(slice(start, start + BLOCK)), start)

    def __len__(self) -> int:
        return len(self.signatures)

    def meet(self, signatures: Signatures) -> Numbers:
        """For each text the number of the first text that it is near to, or −1: then it is new, and numbered itself."""
        keys = band_keys(signatures, self._settings.rows)
        first = self._earlier(signatures, keys)
        new = self._among_themselves(signatures, keys, first)
        start = len(self)
        self.signatures.append(signatures[new])
        self._add(signatures[new], start)
        return first

    def _earlier(self, signatures: Signatures, keys: NDArray[np.uint64]) -> Numbers:
        """For each text the first of the texts before this batch that it is near to, or −1."""
        first = np.full(len(signatures), -1, np.int64)
        which, ids = self._runs.find(keys.ravel())
        texts, known_ids = _likely(which // keys.shape[1], ids)
        for start in range(0, len(texts), BLOCK):
            text, known = texts[start : start + BLOCK], known_ids[start : start + BLOCK]
            agree = (self.signatures.rows(known) == signatures[text]).sum(axis=1) >= self._settings.agreement
            for one, number in zip(text[agree].tolist(), known[agree].tolist(), strict=True):
                first[one] = number if first[one] < 0 else min(first[one], number)
        return first

    def _among_themselves(self, signatures: Signatures, keys: NDArray[np.uint64], first: Numbers) -> list[int]:
        """Compare the texts of a batch with the new ones before them, in order; say which are new."""
        _, inverse, times = np.unique(keys, return_inverse=True, return_counts=True)
        shared: NDArray[np.bool_] = np.any(times[inverse.reshape(keys.shape)] > 1, axis=1)
        new: list[int] = []
        holders: dict[int, list[int]] = {}  # key → places in `new`
        for text in np.flatnonzero(first < 0).tolist():
            if shared[text]:
                met = Counter(place for key in keys[text].tolist() for place in holders.get(key, ()))
                places = sorted(sorted(met), key=lambda place: -met[place])[:CANDIDATES]
                agree = (signatures[[new[place] for place in places]] == signatures[text]).sum(axis=1)
                near = [place for place, same in zip(places, agree, strict=True) if same >= self._settings.agreement]
                if near:
                    first[text] = len(self) + min(near)
                    continue
                for key in keys[text].tolist():
                    holders.setdefault(key, []).append(len(new))
            new.append(text)
        return new

    def _add(self, signatures: Signatures, start: int) -> None:
        keys = band_keys(signatures, self._settings.rows)
        ids = np.arange(start, start + len(keys), dtype=np.uint32)
        self._runs.add(keys.ravel(), np.repeat(ids, keys.shape[1]))

    def close(self) -> None:
        """Let go of the files."""
        self.signatures.close()


def _likely(texts: Numbers, ids: NDArray[np.uint32]) -> tuple[Numbers, Numbers]:
    """Pairs of a text and an earlier one, each once; of a text with too many those that share the most bands."""
    pairs, bands = np.unique(texts << 32 | ids.astype(np.int64), return_counts=True)
    texts, ids = pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.uint32)
    starts = np.flatnonzero(np.diff(texts, prepend=-1))
    if not len(texts) or np.diff(starts, append=len(texts)).max() <= CANDIDATES:
        return texts, ids.astype(np.int64)
    order = np.lexsort((ids, -bands, texts))  # the same texts in the same places, the likeliest first
    rank = np.arange(len(texts)) - np.repeat(starts, np.diff(starts, append=len(texts)))
    few = order[rank < CANDIDATES]
    return texts[few], ids[few].astype(np.int64)
