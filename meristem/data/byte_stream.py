"""The decompressed bytes of a file in bounded chunks; rejects files whose contents do not match their extension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meristem.data.compression import CHUNK_BYTES, TruncatedFileError, decompress
from meristem.data.read_counts import ReadCounts

if TYPE_CHECKING:
    from meristem.data.sources import FileSource

HEAD_BYTES = 1 << 20
"""Bytes at the start of a file from which encoding and document unit are detected."""

MAGIC_NUMBERS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PAR1": "parquet",
    b"PK\x03\x04": "zip",
    b"%PDF-": "PDF",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"\x7fELF": "a program",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x80\x02": "pickled",
    b"\x80\x03": "pickled",
    b"\x80\x04": "pickled",
    b"\x80\x05": "pickled",
}
COMPRESSION_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}


class UnreadableFileError(Exception):
    """The whole file is rejected; the message is the reason."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line
        """The line that shows it, if there is one."""


class ByteStream:
    """One file's decompressed bytes; `head` is read immediately, `chunks` yields everything from the start."""

    def __init__(self, file: FileSource, counts: ReadCounts, start: int = 0, stop: int | None = None) -> None:
        self.file, self._counts = file, counts
        self._chunks = decompress(self._read_disk(start, stop), file.compression)
        self._failure: TruncatedFileError | None = None
        self.head_is_all = True
        """Whether the head is the whole file."""
        self.head = self._read_head()
        if not self.head and self._failure is None:
            raise UnreadableFileError("empty file")

    def chunks(self) -> Iterator[bytes]:
        """Everything, in chunks; raises TruncatedFileError where the file is damaged."""
        yield self.head
        if self._failure is not None:
            raise self._failure
        yield from self._chunks

    def _read_head(self) -> bytes:
        parts: list[bytes] = []
        try:
            for chunk in self._chunks:
                parts.append(chunk)
                if sum(map(len, parts)) >= HEAD_BYTES:
                    self.head_is_all = False
                    break
        except TruncatedFileError as error:
            self._failure = error
        return b"".join(parts)

    def _read_disk(self, start: int, stop: int | None) -> Iterator[bytes]:
        remaining = (self.file.size if stop is None else stop) - start
        is_started = False
        try:
            with self.file.path.open("rb") as handle:
                handle.seek(start)
                while remaining > 0 and (chunk := handle.read(min(CHUNK_BYTES, remaining))):
                    if not is_started:
                        self._check_signature(chunk)
                    is_started = True
                    remaining -= len(chunk)
                    self._counts.bytes += len(chunk)
                    yield chunk
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
            raise (TruncatedFileError(reason) if is_started else UnreadableFileError(reason)) from None

    def _check_signature(self, chunk: bytes) -> None:
        magic = COMPRESSION_MAGIC.get(self.file.compression, b"")
        if not chunk.startswith(magic):
            raise UnreadableFileError(f"ends in {self.file.compression}, but is not compressed so")


def check_not_binary(head: bytes, extension: str) -> None:
    """Reject a text file whose first bytes are the magic number of another file type."""
    for magic, kind in MAGIC_NUMBERS.items():
        if head.startswith(magic):
            raise UnreadableFileError(
                f"ends in {extension}, but holds {kind} data" if extension else f"holds {kind} data"
            )
