"""Appends encoded batches to the shards of a split; a shard appears complete or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.dataset.encode_documents import EncodedBatch
from meristem.dataset.manifest import FileRecord, ShardRecord
from meristem.dataset.shard import (
    DOCUMENTS,
    IMAGES,
    OFFSETS,
    SENTENCES,
    SPELLING_IDS,
    SPELLINGS,
    TARGET_STARTS,
    TOKENS,
    file_name,
)
from meristem.utils.durable_files import PartialFile, fsync_folder


class ShardWriter:
    """One shard being written: tokens go to disk at once, the indexes stay in memory until the end."""

    def __init__(self, folder: Path, number: int, *, keep_words: bool) -> None:
        self._folder, self._number = folder, number
        self.tokens = 0
        self._bytes = 0
        self._consumed = 0
        self._unknown = np.zeros(2, np.int64)
        self._source_digest = hashlib.sha256()
        self._document_ends = [np.zeros(1, np.int64)]
        self._sentence_starts: list[NDArray[np.uint32]] = []
        self._target_starts: list[NDArray[np.uint32]] = []
        self._files = {TOKENS: self._open(TOKENS)}
        self._spellings: dict[bytes, int] = {}
        if keep_words:
            self._files[SPELLING_IDS] = self._open(SPELLING_IDS)

    def add(self, encoded: EncodedBatch) -> None:
        """Append documents."""
        self._files[TOKENS].write(encoded.tokens.tobytes())
        self._document_ends.append(self.tokens + np.cumsum(encoded.lengths)[encoded.lengths > 0])
        self._sentence_starts.append((self.tokens + encoded.sentence_starts).astype("<u4"))
        if encoded.spellings is not None:
            # numbered by first appearance in the shard, so that the batch size does not affect the files
            used, first = np.unique(encoded.spellings.ids, return_index=True)
            new_ids = np.zeros(len(encoded.spellings.table), dtype="<u4")
            for old_id in used[np.argsort(first)]:
                new_ids[old_id] = self._spellings.setdefault(encoded.spellings.table[old_id], len(self._spellings))
            self._files[SPELLING_IDS].write(new_ids[encoded.spellings.ids].tobytes())
        if encoded.target_starts is not None:
            self._target_starts.append((self.tokens + encoded.target_starts).astype("<u4"))
        if encoded.images is not None:
            if IMAGES not in self._files:
                self._files[IMAGES] = self._open(IMAGES)
            self._files[IMAGES].write(encoded.images.tobytes())
        self.tokens += len(encoded.tokens)
        self._bytes += int(encoded.byte_sizes.sum())
        self._consumed += len(encoded.lengths)
        self._unknown += encoded.unknown_counts.sum(0)
        self._source_digest.update(encoded.fingerprints)

    def finish(self) -> ShardRecord:
        """Write the indexes, rename every file to its final name, and return the shard's record."""
        documents, sentences = np.concatenate(self._document_ends), np.concatenate(self._sentence_starts)
        arrays: dict[str, NDArray[Any]] = {DOCUMENTS: documents.astype("<i8"), SENTENCES: sentences}
        if self._target_starts:
            arrays[TARGET_STARTS] = np.concatenate(self._target_starts)
        if SPELLING_IDS in self._files:
            arrays[SPELLINGS] = np.frombuffer(b"".join(self._spellings), np.uint8)
            arrays[OFFSETS] = np.cumsum([0, *map(len, self._spellings)]).astype("<i8")
        for kind, array in arrays.items():
            self._files[kind] = self._open(kind)
            self._files[kind].write(array.tobytes())
        files = {
            file_name(self._number, kind): FileRecord(size=file.size, sha256=file.finish())
            for kind, file in self._files.items()
        }
        fsync_folder(self._folder)
        unknown, unknown_bytes = self._unknown.tolist()
        return ShardRecord(
            tokens=self.tokens,
            documents=len(documents) - 1,
            sentences=len(sentences),
            unknown=unknown,
            unknown_bytes=unknown_bytes,
            bytes=self._bytes,
            consumed=self._consumed,
            source=self._source_digest.hexdigest(),
            files=files,
        )

    def discard(self) -> None:
        """Delete all temporary files."""
        for file in self._files.values():
            file.discard()

    def _open(self, kind: str) -> PartialFile:
        return PartialFile(self._folder / file_name(self._number, kind))


class SplitWriter:
    """The shards of a split, one after another; `on_finished` is called with the record of each finished one."""

    def __init__(
        self,
        folder: Path,
        *,
        number: int,
        shard_tokens: int,
        keep_words: bool,
        on_finished: Callable[[ShardRecord], None],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._number, self._shard_tokens = folder, number, shard_tokens
        self._keep_words, self._on_finished = keep_words, on_finished
        self._shard: ShardWriter | None = None

    def add(self, encoded: EncodedBatch) -> None:
        """Append documents; a shard is closed after the document that fills it."""
        first = 0
        while first < len(encoded.lengths):
            shard = self._shard = self._shard or ShardWriter(self._folder, self._number, keep_words=self._keep_words)
            ends = shard.tokens + np.cumsum(encoded.lengths[first:])
            last = first + int(np.searchsorted(ends, self._shard_tokens)) + 1
            shard.add(encoded.select(first, last))
            if shard.tokens >= self._shard_tokens:
                self._close(shard)
            first = last

    def close(self) -> None:
        """Finish the last shard, however short, unless it is empty."""
        if self._shard is not None and self._shard.tokens:
            self._close(self._shard)
        self.discard()

    def discard(self) -> None:
        """Discard the shard that is being written."""
        if self._shard is not None:
            self._shard.discard()
            self._shard = None

    def _close(self, shard: ShardWriter) -> None:
        self._on_finished(shard.finish())
        self._number += 1
        self._shard = None
