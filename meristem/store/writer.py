"""Appends packs of documents to a split's shards; a shard appears whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.corpus.parts import flush_folder
from meristem.store.encode import Pack
from meristem.store.manifest import PARTIAL, FileRecord, ShardRecord
from meristem.store.shards import (
    DOCUMENTS,
    MIDDLES,
    OFFSETS,
    PICTURES,
    SENTENCES,
    SPELLINGS,
    TOKENS,
    WORDS,
    file_name,
)
from meristem.system_errors import naming_file


class GrowingFile:
    """A file written beside its final name, hashed as it grows, renamed when it is on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._beside = path, path.with_name(path.name + PARTIAL)
        self._file = self._beside.open("wb")
        self._digest, self._size = hashlib.sha256(), 0

    def write(self, array: NDArray[Any]) -> None:
        """Append an array's bytes."""
        data = array.tobytes()
        with naming_file(self._path):
            self._file.write(data)
        self._digest.update(data)
        self._size += len(data)

    def finish(self) -> FileRecord:
        """Flush to disk and take the final name."""
        with naming_file(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        self._beside.replace(self._path)
        return FileRecord(size=self._size, sha256=self._digest.hexdigest())

    def abandon(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):  # what waits to be written is not wanted, and may have no room
            self._file.close()
        with suppress(OSError):
            self._beside.unlink()


class GrowingShard:
    """One shard being written: tokens go to disk as they come, the indexes wait in memory."""

    def __init__(self, folder: Path, number: int, *, keep_words: bool) -> None:
        self._folder, self._number = folder, number
        self.tokens = 0
        self._bytes = 0
        self._consumed = 0
        self._unknown = np.zeros(2, np.int64)
        self._source = hashlib.sha256()
        self._documents = [np.zeros(1, np.int64)]
        self._sentences: list[NDArray[np.uint32]] = []
        self._middles: list[NDArray[np.uint32]] = []
        self._files = {TOKENS: self._open(TOKENS)}
        self._spellings: dict[bytes, int] = {}
        if keep_words:
            self._files[WORDS] = self._open(WORDS)

    def add(self, pack: Pack) -> None:
        """Append documents."""
        self._files[TOKENS].write(pack.tokens)
        self._documents.append(self.tokens + np.cumsum(pack.spans)[pack.spans > 0])
        self._sentences.append((self.tokens + pack.sentences).astype("<u4"))
        if pack.words is not None:
            # numbered by first appearance in the shard, so that the size of a pack leaves no trace
            used, first = np.unique(pack.words.numbers, return_index=True)
            numbers = np.zeros(len(pack.words.spellings), dtype="<u4")
            for old in used[np.argsort(first)]:
                numbers[old] = self._spellings.setdefault(pack.words.spellings[old], len(self._spellings))
            self._files[WORDS].write(numbers[pack.words.numbers])
        if pack.middles is not None:
            self._middles.append((self.tokens + pack.middles).astype("<u4"))
        if pack.pictures is not None:
            if PICTURES not in self._files:
                self._files[PICTURES] = self._open(PICTURES)
            self._files[PICTURES].write(pack.pictures)
        self.tokens += len(pack.tokens)
        self._bytes += int(pack.sizes.sum())
        self._consumed += len(pack.spans)
        self._unknown += pack.unknown.sum(0)
        self._source.update(pack.fingerprints)

    def finish(self) -> ShardRecord:
        """Write the indexes, put every file in its place, and say what is there."""
        documents, sentences = np.concatenate(self._documents), np.concatenate(self._sentences)
        arrays: dict[str, NDArray[Any]] = {DOCUMENTS: documents.astype("<i8"), SENTENCES: sentences}
        if self._middles:
            arrays[MIDDLES] = np.concatenate(self._middles)
        if WORDS in self._files:
            arrays[SPELLINGS] = np.frombuffer(b"".join(self._spellings), np.uint8)
            arrays[OFFSETS] = np.cumsum([0, *map(len, self._spellings)]).astype("<i8")
        for kind, array in arrays.items():
            self._files[kind] = self._open(kind)
            self._files[kind].write(array)
        files = {file_name(self._number, kind): file.finish() for kind, file in self._files.items()}
        flush_folder(self._folder)
        unknown, unknown_bytes = self._unknown.tolist()
        return ShardRecord(tokens=self.tokens, documents=len(documents) - 1, sentences=len(sentences),
                           unknown=unknown, unknown_bytes=unknown_bytes, bytes=self._bytes, consumed=self._consumed,
                           source=self._source.hexdigest(), files=files)

    def abandon(self) -> None:
        """Leave nothing behind."""
        for file in self._files.values():
            file.abandon()

    def _open(self, kind: str) -> GrowingFile:
        return GrowingFile(self._folder / file_name(self._number, kind))


class Writer:
    """A split's shards, one after another; `finished` hears of each that is complete."""

    def __init__(self, folder: Path, *, number: int, shard_tokens: int, keep_words: bool,
                 finished: Callable[[ShardRecord], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._number, self._shard_tokens = folder, number, shard_tokens
        self._keep_words, self._finished = keep_words, finished
        self._shard: GrowingShard | None = None

    def add(self, pack: Pack) -> None:
        """Append documents; the one that fills a shard is its last."""
        first = 0
        while first < len(pack.spans):
            shard = self._shard = self._shard or GrowingShard(self._folder, self._number, keep_words=self._keep_words)
            ends = shard.tokens + np.cumsum(pack.spans[first:])
            last = first + int(np.searchsorted(ends, self._shard_tokens)) + 1
            shard.add(pack.part(first, last))
            if shard.tokens >= self._shard_tokens:
                self._close(shard)
            first = last

    def close(self) -> None:
        """Finish the last shard, however short; one without a token is none."""
        if self._shard is not None and self._shard.tokens:
            self._close(self._shard)
        self.abandon()

    def abandon(self) -> None:
        """Give up the shard that is being written."""
        if self._shard is not None:
            self._shard.abandon()
            self._shard = None

    def _close(self, shard: GrowingShard) -> None:
        self._finished(shard.finish())
        self._number += 1
        self._shard = None
