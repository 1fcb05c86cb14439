"""One shard on disk: token ids, offsets of documents and sentences, and in word-level datasets each word's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.dataset.manifest import DTYPE_BYTES, FileRecord, ShardRecord, damaged_error
from meristem.utils.durable_files import range_sha256

TOKENS, DOCUMENTS, SENTENCES = "tokens", "documents", "sentences"
SPELLING_IDS, SPELLINGS, OFFSETS = "words", "spellings", "offsets"
TARGET_STARTS, IMAGES = "middles", "pictures"
FILE_KINDS = (TOKENS, DOCUMENTS, SENTENCES, SPELLING_IDS, SPELLINGS, OFFSETS, TARGET_STARTS, IMAGES)
CHUNK = 1 << 22


def dtype_for(vocab_size: int) -> str:
    """The narrowest type that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def file_name(shard_index: int, kind: str) -> str:
    """File name within a split: `00000.tokens` holds the first shard's tokens."""
    return f"{shard_index:05d}.{kind}"


class Shard:
    """A finished shard; its files are memory-mapped on first use."""

    def __init__(self, folder: Path, number: int, dtype: str, record: ShardRecord) -> None:
        self.folder, self.number, self.dtype, self.record = folder, number, dtype, record

    def __reduce__(self) -> tuple[Any, ...]:
        # a memory map would be pickled as a copy of the whole file
        return Shard, (self.folder, self.number, self.dtype, self.record)

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """Ids of every document, each followed by the separator."""
        return self._map(TOKENS, self.dtype)

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """Start offset of each document in this shard, then the shard's length."""
        return self._map(DOCUMENTS, "<i8")

    @cached_property
    def sentences(self) -> NDArray[np.uint32]:
        """Start offset of each sentence in this shard."""
        return self._map(SENTENCES, "<u4")

    @cached_property
    def target_starts(self) -> NDArray[np.uint32]:
        """Start offset of each pair's target in this shard."""
        return self._map(TARGET_STARTS, "<u4")

    @cached_property
    def images(self) -> NDArray[np.uint8]:
        """Each document's image, [documents, side, side, 3]."""
        flat = self._map(IMAGES, "u1")
        side = round((len(flat) / 3 / self.record.documents) ** 0.5)
        return flat.reshape(self.record.documents, side, side, 3)

    def has_file(self, kind: str) -> bool:
        """Whether the shard has files of this kind."""
        return file_name(self.number, kind) in self.record.files

    def spellings(self, start: int, stop: int) -> list[bytes]:
        """The bytes of text behind each token; separators have none."""
        spelling_ids = self._spelling_ids[start:stop]
        begins, ends = self._offsets[spelling_ids], self._offsets[spelling_ids + 1]
        return [self._spellings[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)]

    @cached_property
    def _spelling_ids(self) -> NDArray[np.uint32]:
        return self._map(SPELLING_IDS, "<u4")

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return self._map(OFFSETS, "<i8")

    @cached_property
    def _spellings(self) -> NDArray[np.uint8]:
        return self._map(SPELLINGS, "u1")

    def _map(self, kind: str, dtype: str) -> NDArray[Any]:
        path = self.folder / file_name(self.number, kind)
        if not path.stat().st_size:
            return np.zeros(0, dtype)
        return np.asarray(np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r"))

    def check(self, *, contents: bool) -> None:
        """Compare every file with the manifest: its size, and its checksum if `contents`."""
        for name, record in self.record.files.items():
            if name not in {file_name(self.number, kind) for kind in FILE_KINDS}:
                raise damaged_error(self.folder / file_name(self.number, TOKENS), f"its shard lists {name!r:.60}")
            check_file(self.folder / name, record, contents=contents)
        self._check_counts()
        if contents:
            self._check_offsets()

    def _check_counts(self) -> None:
        """Check that counts are not negative and that file sizes match them."""
        record = self.record
        sizes = {TOKENS: record.tokens * DTYPE_BYTES[self.dtype], DOCUMENTS: 8 * (record.documents + 1)}
        sizes[SENTENCES] = 4 * record.sentences
        for kind, size in sizes.items():
            name = file_name(self.number, kind)
            if name not in record.files or record.files[name].size != size:
                raise damaged_error(self.folder / name, f"not the {size:,} bytes its counts require")

    def _check_offsets(self) -> None:
        """Check that documents are consecutive and fill the shard, and that sentences begin inside it."""
        documents, path = self.documents, self.folder / file_name(self.number, DOCUMENTS)
        is_complete = documents[0] == 0 and documents[-1] == self.record.tokens
        if not is_complete or any((chunk[1:] < chunk[:-1]).any() for chunk in _iter_chunks(documents)):
            raise damaged_error(path, "its documents are not consecutive")
        if any((chunk >= self.record.tokens).any() for chunk in _iter_chunks(self.sentences)):
            raise damaged_error(path.with_suffix(f".{SENTENCES}"), "a sentence begins outside the shard")


def _iter_chunks(offsets: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Chunks of an index, each with the first entry of the next chunk: bounds the memory needed."""
    return (offsets[start : start + CHUNK + 1] for start in range(0, len(offsets), CHUNK))


def check_file(path: Path, record: FileRecord, *, contents: bool) -> None:
    """Raise an error that names the file if it is missing, truncated or changed."""
    if not path.is_file():
        raise damaged_error(path, "missing")
    size = path.stat().st_size
    if size != record.size:
        raise damaged_error(path, f"{size:,} bytes long instead of {record.size:,}")
    if contents and range_sha256(path) != record.sha256:
        raise damaged_error(path, "its checksum does not match")
