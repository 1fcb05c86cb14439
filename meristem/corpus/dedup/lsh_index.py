"""LSH index over MinHash signatures: finds near duplicates by shared bands, then compares signatures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.corpus.dedup.append_only_array import BLOCK_ROWS, AppendOnlyArray
from meristem.corpus.dedup.minhash import NUM_HASHES, MinHashSettings, Signatures, band_keys
from meristem.corpus.dedup.sorted_runs import SortedRuns

MAX_CANDIDATES = 64
"""Maximum number of earlier texts a text is compared with: those that share the most bands."""

IndexArray = NDArray[np.int64]


class LSHIndex:
    """Index of the texts that are not near duplicates of an earlier one.

    Their signatures are in an append-only file, and the bands are computed from it, so that the file and its number of
    rows are all that is needed to resume.
    """

    def __init__(self, settings: MinHashSettings, folder: Path, *, count: int = 0) -> None:
        self._settings = settings
        folder.mkdir(parents=True, exist_ok=True)
        self.signatures = AppendOnlyArray(folder / "signatures", "<u2", NUM_HASHES, count=count)
        self._runs = SortedRuns(folder / "bands", settings.memory_mb << 20)
        for start in range(0, count, BLOCK_ROWS):
            self._add_bands(self.signatures.rows(slice(start, start + BLOCK_ROWS)), start)

    def __len__(self) -> int:
        return len(self.signatures)

    def query_and_add(self, signatures: Signatures) -> IndexArray:
        """For each text the index of the first text it is a near duplicate of, or −1: then it is new, and is added."""
        keys = band_keys(signatures, self._settings.rows_per_band)
        first = self._match_index(signatures, keys)
        new_texts = self._match_batch(signatures, keys, first)
        start = len(self)
        self.signatures.append(signatures[new_texts])
        self._add_bands(signatures[new_texts], start)
        return first

    def _match_index(self, signatures: Signatures, keys: NDArray[np.uint64]) -> IndexArray:
        """For each text the first near duplicate among texts of earlier batches, or −1."""
        first = np.full(len(signatures), -1, np.int64)
        which, ids = self._runs.find(keys.ravel())
        texts, known_ids = _top_candidates(which // keys.shape[1], ids)
        for start in range(0, len(texts), BLOCK_ROWS):
            text, known = texts[start : start + BLOCK_ROWS], known_ids[start : start + BLOCK_ROWS]
            is_match = (self.signatures.rows(known) == signatures[text]).sum(axis=1) >= self._settings.min_matches
            for text_index, number in zip(text[is_match].tolist(), known[is_match].tolist(), strict=True):
                first[text_index] = number if first[text_index] < 0 else min(first[text_index], number)
        return first

    def _match_batch(self, signatures: Signatures, keys: NDArray[np.uint64], first: IndexArray) -> list[int]:
        """Compare the texts of a batch with the new ones before them, in order; returns which are new."""
        _, inverse, times = np.unique(keys, return_inverse=True, return_counts=True)
        shared: NDArray[np.bool_] = np.any(times[inverse.reshape(keys.shape)] > 1, axis=1)
        new_texts: list[int] = []
        key_holders: dict[int, list[int]] = {}  # key → positions in `new_texts`
        for text in np.flatnonzero(first < 0).tolist():
            if shared[text]:
                shared_bands = Counter(position for key in keys[text].tolist() for position in key_holders.get(key, ()))
                positions = sorted(sorted(shared_bands), key=lambda position: -shared_bands[position])[:MAX_CANDIDATES]
                num_matches = (signatures[[new_texts[position] for position in positions]] == signatures[text]).sum(
                    axis=1
                )
                matches = [
                    position
                    for position, num_equal in zip(positions, num_matches, strict=True)
                    if num_equal >= self._settings.min_matches
                ]
                if matches:
                    first[text] = len(self) + min(matches)
                    continue
                for key in keys[text].tolist():
                    key_holders.setdefault(key, []).append(len(new_texts))
            new_texts.append(text)
        return new_texts

    def _add_bands(self, signatures: Signatures, start: int) -> None:
        keys = band_keys(signatures, self._settings.rows_per_band)
        ids = np.arange(start, start + len(keys), dtype=np.uint32)
        self._runs.add(keys.ravel(), np.repeat(ids, keys.shape[1]))

    def close(self) -> None:
        """Close the files."""
        self.signatures.close()


def _top_candidates(texts: IndexArray, ids: NDArray[np.uint32]) -> tuple[IndexArray, IndexArray]:
    """Distinct (text, earlier text) pairs; for a text with too many, those that share the most bands."""
    pairs, bands = np.unique(texts << 32 | ids.astype(np.int64), return_counts=True)
    texts, ids = pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.uint32)
    starts = np.flatnonzero(np.diff(texts, prepend=-1))
    if not len(texts) or np.diff(starts, append=len(texts)).max() <= MAX_CANDIDATES:
        return texts, ids.astype(np.int64)
    order = np.lexsort((ids, -bands, texts))  # grouped by text as before, most shared bands first
    rank = np.arange(len(texts)) - np.repeat(starts, np.diff(starts, append=len(texts)))
    selected = order[rank < MAX_CANDIDATES]
    return texts[selected], ids[selected].astype(np.int64)
