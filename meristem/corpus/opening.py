"""The bytes of a file, in bounded chunks; a file that is not what its ending says is refused by name."""

from __future__ import annotations

from collections.abc import Iterator

from meristem.corpus.account import Account
from meristem.corpus.compression import CHUNK, CutShort, decompressed
from meristem.corpus.source_kinds import File

HEAD = 1 << 20
"""Bytes at the start of a file from which its encoding and its cut into documents are decided."""

MAGIC = {
    b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PAR1": "parquet", b"PK\x03\x04": "zip", b"%PDF-": "PDF",
    b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG", b"\x7fELF": "a program", b"BZh": "bzip2", b"\xfd7zXZ": "xz",
    b"\x80\x02": "pickled", b"\x80\x03": "pickled", b"\x80\x04": "pickled", b"\x80\x05": "pickled",
}
SIGNATURES = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}


class Unreadable(Exception):
    """The whole file is refused, with the reason."""


class Stream:
    """One file's plain bytes; `head` is read at once, `chunks` gives everything from the start."""

    def __init__(self, file: File, account: Account, start: int = 0, stop: int | None = None) -> None:
        self.file, self._account = file, account
        self._chunks = decompressed(self._disk(start, stop), file.compression)
        self._broken: CutShort | None = None
        self.whole = True
        """Whether the head is all there is."""
        self.head = self._first()
        if not self.head and self._broken is None:
            raise Unreadable("empty file")

    def chunks(self) -> Iterator[bytes]:
        """Everything, in chunks; raises CutShort where the file breaks."""
        yield self.head
        if self._broken is not None:
            raise self._broken
        yield from self._chunks

    def _first(self) -> bytes:
        parts: list[bytes] = []
        try:
            for chunk in self._chunks:
                parts.append(chunk)
                if sum(map(len, parts)) >= HEAD:
                    self.whole = False
                    break
        except CutShort as error:
            self._broken = error
        return b"".join(parts)

    def _disk(self, start: int, stop: int | None) -> Iterator[bytes]:
        left = (self.file.size if stop is None else stop) - start
        begun = False
        try:
            with self.file.path.open("rb") as handle:
                handle.seek(start)
                while left > 0 and (chunk := handle.read(min(CHUNK, left))):
                    if not begun:
                        self._check_signature(chunk)
                    begun = True
                    left -= len(chunk)
                    self._account.bytes += len(chunk)
                    yield chunk
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
            raise (CutShort(reason) if begun else Unreadable(reason)) from None

    def _check_signature(self, chunk: bytes) -> None:
        wanted = SIGNATURES.get(self.file.compression, b"")
        if not chunk.startswith(wanted):
            raise Unreadable(f"ends in {self.file.compression}, but is not compressed so")


def refuse_binary(head: bytes, ending: str) -> None:
    """Refuse a text file whose first bytes belong to another kind of file."""
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            raise Unreadable(f"ends in {ending}, but holds {kind} data" if ending else f"holds {kind} data")
