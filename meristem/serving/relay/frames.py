"""Length-prefixed frames between the HTTP process and the model process."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

HEADER = struct.Struct("!IIB")
"""Bytes of the payload, number of the request, kind."""


class FrameKind(IntEnum):
    """What a frame says; comments give the sender and the payload."""

    START = 1
    """Model process, once: settings and routes of the server, as JSON."""
    STOP = 2
    """Model process: the number of a stop signal."""
    STOPPED = 3
    """HTTP process, once: the number of requests that were cut off."""
    REQUEST = 4
    """HTTP process: fields of the ASGI scope, and the whole body."""
    CANCEL = 5
    """HTTP process: the client has left, or may not wait any longer."""
    CREDIT = 6
    """HTTP process: the number of bytes of a response that the client's connection has taken."""
    HEAD = 7
    """Model process: status and headers of a response, and the first part of its body; more follows."""
    BODY = 8
    """Model process: a part of a body; more follows."""
    END = 9
    """Model process: the last part of a body."""
    RESPONSE = 10
    """Model process: status, headers and the whole body."""
    ABORT = 11
    """Model process: there is no response, or no more of it."""


OnFrame = Callable[[FrameKind, int, bytes], None]


class FrameConnection(asyncio.Protocol):
    """One end of the socket: sends frames, and calls a function with each frame that arrives."""

    def __init__(self, on_frame: OnFrame, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called when the other process has closed its end, or has ended."""
        self._on_frame, self._on_lost = on_frame, on_lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self, kind: FrameKind, number: int = 0, payload: bytes = b"") -> None:
        """Send a frame; without effect once the other process has gone."""
        if self._transport is not None:
            self._transport.writelines((HEADER.pack(len(payload), number, kind), payload))

    def data_received(self, data: bytes) -> None:
        """Split what has arrived into frames."""
        self._buffer += data
        begin = 0
        while len(self._buffer) >= begin + HEADER.size:
            size, number, kind = HEADER.unpack_from(self._buffer, begin)
            end = begin + HEADER.size + size
            if len(self._buffer) < end:
                break
            payload = bytes(memoryview(self._buffer)[begin + HEADER.size : end])
            begin = end
            self._on_frame(FrameKind(kind), number, payload)
        del self._buffer[:begin]

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing more arrives."""
        self._transport = None
        self._on_lost()

    def close(self) -> None:
        """Send what is left, and close."""
        if self._transport is not None:
            self._transport.close()


def encode_fields(fields: dict[str, Any], body: bytes = b"") -> bytes:
    """A payload of JSON fields and a body; bytes within the fields are written as Latin-1."""
    return json.dumps(fields, default=_latin1, allow_nan=False).encode() + b"\n" + body


def decode_fields(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """(fields, body) of a payload."""
    fields, _, body = payload.partition(b"\n")
    return json.loads(fields), body


def decode_headers(pairs: list[list[str]]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def _latin1(value: Any) -> str:
    """The bytes of a header or of a path, which `json` cannot write."""
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r} cannot be sent")
    return value.decode("latin-1")
