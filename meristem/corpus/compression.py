"""Gzip and zstd as streams of bounded chunks, with truncation and damage told apart from the end."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

from meristem.errors import MeristemError

CHUNK = 1 << 20

GULP = 1 << 10
"""Bytes of zstd fed at once: 4 of them may stand for 128 KiB, and its output cannot be bounded in another way."""


SLICE = 1 << 16
"""Compressed bytes that are unpacked before it is asked how much they became."""

TRUSTED, MOST = 8 << 20, 100
"""Plain bytes that may come of anything, and beyond them how many of each compressed one: text gives 3 to 10."""

BEYOND = f"unpacks to more than {MOST} times its size"


class CutShort(Exception):
    """A file ends or breaks in the middle; what came before is good."""


def decompressed(raw: Iterator[bytes], compression: str) -> Iterator[bytes]:
    """The plain bytes in chunks of one size; raises CutShort after the last good one."""
    parts = _believable(raw, {".gz": _gzip, ".zst": _zstd}[compression]) if compression else raw
    waiting = bytearray()
    broken: CutShort | None = None
    while broken is None:
        try:
            waiting += next(parts)
        except StopIteration:
            break
        except CutShort as error:
            broken = error
        while len(waiting) >= CHUNK:
            yield bytes(waiting[:CHUNK])
            del waiting[:CHUNK]
    if waiting:
        yield bytes(waiting)
    if broken is not None:
        raise broken


def _believable(raw: Iterator[bytes], unpack: Callable[[Iterator[bytes]], Iterator[bytes]]) -> Iterator[bytes]:
    """What unpacks to far more than any text does is taken for a trap, and not read on."""
    taken = given = 0

    def slices() -> Iterator[bytes]:
        nonlocal taken
        for chunk in raw:
            for at in range(0, len(chunk), SLICE):
                part = chunk[at : at + SLICE]
                taken += len(part)
                yield part

    for out in unpack(slices()):
        given += len(out)
        if given > TRUSTED and given > MOST * taken:
            raise CutShort(BEYOND)
        yield out


def _gzip(raw: Iterator[bytes]) -> Iterator[bytes]:
    engine = None
    for data in raw:
        pending = False
        while data or pending:
            if engine is None:
                if not (data := data.lstrip(b"\0")):  # padding between or after members
                    break
                engine = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                out = engine.decompress(data, CHUNK)
            except zlib.error:
                raise CutShort("damaged file") from None
            yield out
            data, pending = engine.unconsumed_tail, len(out) == CHUNK
            if engine.eof:
                data, pending, engine = engine.unused_data, False, None
    if engine is not None:
        raise CutShort("truncated file")


def _zstd(raw: Iterator[bytes]) -> Iterator[bytes]:
    library = _zstandard()
    engine = None
    for chunk in raw:
        for at in range(0, len(chunk), GULP):
            data = chunk[at : at + GULP]
            while data:
                engine = engine or library.ZstdDecompressor().decompressobj()
                try:
                    yield engine.decompress(data)
                except library.ZstdError:
                    raise CutShort("damaged file") from None
                data = engine.unused_data if engine.eof else b""
                engine = None if engine.eof else engine
    if engine is not None:
        raise CutShort("truncated file")


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MeristemError('reading .zst needs zstandard: pip install "meristem[data]"') from None
    return zstandard
