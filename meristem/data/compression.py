"""Streaming gzip and zstd decompression in bounded chunks; detects truncated and damaged files and zip bombs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from meristem.utils.optional_packages import require_module

CHUNK_BYTES = 1 << 20

ZSTD_FEED_BYTES = 1 << 10
"""Compressed zstd bytes passed at once: 4 of them may stand for 128 KiB, and there is no other bound on the output."""


SLICE_BYTES = 1 << 16
"""Compressed bytes decompressed between two checks of the ratio."""

UNCHECKED_BYTES, MAX_RATIO = 8 << 20, 100
"""Bytes of output not checked, and then the maximum ratio of output to input: text has 3 to 10."""

RATIO_ERROR = f"unpacks to more than {MAX_RATIO} times its size"


class TruncatedFileError(Exception):
    """A file ends early or is damaged; everything before is valid."""


def decompress(raw: Iterator[bytes], compression: str) -> Iterator[bytes]:
    """The decompressed bytes in chunks of CHUNK_BYTES; raises TruncatedFileError after the last valid one."""
    chunks = _limit_ratio(raw, {".gz": _gunzip, ".zst": _unzstd}[compression]) if compression else raw
    buffer = bytearray()
    failure: TruncatedFileError | None = None
    while failure is None:
        try:
            buffer += next(chunks)
        except StopIteration:
            break
        except TruncatedFileError as error:
            failure = error
        while len(buffer) >= CHUNK_BYTES:
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
    if buffer:
        yield bytes(buffer)
    if failure is not None:
        raise failure


def _limit_ratio(raw: Iterator[bytes], unpack: Callable[[Iterator[bytes]], Iterator[bytes]]) -> Iterator[bytes]:
    """Stop at data that decompress to far more than any text does (a zip bomb)."""
    bytes_in = bytes_out = 0

    def slices() -> Iterator[bytes]:
        nonlocal bytes_in
        for chunk in raw:
            for offset in range(0, len(chunk), SLICE_BYTES):
                part = chunk[offset : offset + SLICE_BYTES]
                bytes_in += len(part)
                yield part

    for unpacked in unpack(slices()):
        bytes_out += len(unpacked)
        if bytes_out > UNCHECKED_BYTES and bytes_out > MAX_RATIO * bytes_in:
            raise TruncatedFileError(RATIO_ERROR)
        yield unpacked


def _gunzip(raw: Iterator[bytes]) -> Iterator[bytes]:
    engine = None
    for data in raw:
        pending = False
        while data or pending:
            if engine is None:
                if not (data := data.lstrip(b"\0")):  # padding between or after members
                    break
                engine = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                out = engine.decompress(data, CHUNK_BYTES)
            except zlib.error:
                raise TruncatedFileError("damaged file") from None
            yield out
            data, pending = engine.unconsumed_tail, len(out) == CHUNK_BYTES
            if engine.eof:
                data, pending, engine = engine.unused_data, False, None
    if engine is not None:
        raise TruncatedFileError("truncated file")


def _unzstd(raw: Iterator[bytes]) -> Iterator[bytes]:
    library = require_module("zstandard", "reading .zst", "data")
    engine = None
    for chunk in raw:
        for offset in range(0, len(chunk), ZSTD_FEED_BYTES):
            data = chunk[offset : offset + ZSTD_FEED_BYTES]
            while data:
                engine = engine or library.ZstdDecompressor().decompressobj()
                try:
                    yield engine.decompress(data)
                except library.ZstdError:
                    raise TruncatedFileError("damaged file") from None
                data = engine.unused_data if engine.eof else b""
                engine = None if engine.eof else engine
    if engine is not None:
        raise TruncatedFileError("truncated file")
