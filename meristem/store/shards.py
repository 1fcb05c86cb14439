"""One shard on disk: tokens, where documents and sentences begin, and in word stores each word's bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.store.manifest import DTYPES, FileRecord, ShardRecord, damaged

TOKENS, DOCUMENTS, SENTENCES = "tokens", "documents", "sentences"
WORDS, SPELLINGS, OFFSETS = "words", "spellings", "offsets"
MIDDLES, PICTURES = "middles", "pictures"
KINDS = (TOKENS, DOCUMENTS, SENTENCES, WORDS, SPELLINGS, OFFSETS, MIDDLES, PICTURES)
CHUNK = 1 << 22


def dtype_for(size: int) -> str:
    """The narrowest type that holds every id of a vocabulary."""
    return "uint16" if size <= 1 << 16 else "uint32"


def file_name(number: int, kind: str) -> str:
    """`00000.tokens` is the first shard's tokens."""
    return f"{number:05d}.{kind}"


class Shard:
    """A finished shard, memory-mapped where it is first touched."""

    def __init__(self, folder: Path, number: int, dtype: str, record: ShardRecord) -> None:
        self.folder, self.number, self.dtype, self.record = folder, number, dtype, record

    def __reduce__(self) -> tuple[Any, ...]:
        # a mapping would travel to another process as a copy of the file
        return Shard, (self.folder, self.number, self.dtype, self.record)

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """Ids of every document, each followed by the separator."""
        return self._map(TOKENS, self.dtype)

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """Where each document begins in this shard, and last the shard's end."""
        return self._map(DOCUMENTS, "<i8")

    @cached_property
    def sentences(self) -> NDArray[np.uint32]:
        """Where each sentence begins in this shard."""
        return self._map(SENTENCES, "<u4")

    @cached_property
    def middles(self) -> NDArray[np.uint32]:
        """Where each pair's target begins in this shard."""
        return self._map(MIDDLES, "<u4")

    @cached_property
    def pictures(self) -> NDArray[np.uint8]:
        """Each document's picture, [documents, side, side, 3]."""
        flat = self._map(PICTURES, "u1")
        side = round((len(flat) / 3 / self.record.documents) ** 0.5)
        return flat.reshape(self.record.documents, side, side, 3)

    def holds(self, kind: str) -> bool:
        """Whether files of this kind were written."""
        return file_name(self.number, kind) in self.record.files

    def spellings(self, start: int, stop: int) -> list[bytes]:
        """The bytes each token was written with; separators have none."""
        numbers = self._words[start:stop]
        begins, ends = self._offsets[numbers], self._offsets[numbers + 1]
        return [self._spellings[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)]

    @cached_property
    def _words(self) -> NDArray[np.uint32]:
        return self._map(WORDS, "<u4")

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
        """Compare every file with what was recorded: its size, and its contents when asked."""
        for name, record in self.record.files.items():
            if name not in {file_name(self.number, kind) for kind in KINDS}:
                raise damaged(self.folder / file_name(self.number, TOKENS), f"its shard names {name!r:.60}")
            check_file(self.folder / name, record, contents=contents)
        self._check_counts()
        if contents:
            self._check_places()

    def _check_counts(self) -> None:
        """Files are as large as the counts say, and every count is one."""
        record = self.record
        sizes = {TOKENS: record.tokens * DTYPES[self.dtype], DOCUMENTS: 8 * (record.documents + 1)}
        sizes[SENTENCES] = 4 * record.sentences
        for kind, size in sizes.items():
            name = file_name(self.number, kind)
            if name not in record.files or record.files[name].size != size:
                raise damaged(self.folder / name, f"not the {size:,} bytes that its counts give")

    def _check_places(self) -> None:
        """Documents lie one after the other and fill the shard; sentences begin inside it."""
        documents, path = self.documents, self.folder / file_name(self.number, DOCUMENTS)
        whole = documents[0] == 0 and documents[-1] == self.record.tokens
        if not whole or any((part[1:] < part[:-1]).any() for part in _parts(documents)):
            raise damaged(path, "its documents do not lie one after the other")
        if any((part >= self.record.tokens).any() for part in _parts(self.sentences)):
            raise damaged(path.with_suffix(f".{SENTENCES}"), "a sentence begins outside the shard")


def _parts(places: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Stretches of an index, each with the first entry of the next: little of it is in memory at once."""
    return (places[start : start + CHUNK + 1] for start in range(0, len(places), CHUNK))


def check_file(path: Path, record: FileRecord, *, contents: bool) -> None:
    """Name the file that is missing, cut short or changed."""
    if not path.is_file():
        raise damaged(path, "missing")
    size = path.stat().st_size
    if size != record.size:
        raise damaged(path, f"{size:,} bytes long instead of {record.size:,}")
    if contents and digest_of(path) != record.sha256:
        raise damaged(path, "its checksum does not match")


def digest_of(path: Path) -> str:
    """A file's SHA-256, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()
