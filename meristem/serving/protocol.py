"""Connections that say nothing, or never end their headers, are closed: uvicorn itself would wait for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from meristem.serving.errors import error_bytes

PATIENCE = 10.0
"""Seconds from the opening of a connection, or from a request's first byte, to the end of its headers."""
MOST = 32 << 10
"""Bytes of headers that are not yet whole."""
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"


class Patient(HttpToolsProtocol):
    """Uvicorn's way to speak HTTP, with an end to its patience."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._waiting: asyncio.TimerHandle | None = None
        self._heard = 0
        self._within = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(PATIENCE, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to headers."""
        if self._within:  # of a body, which the limits of the application see
            super().data_received(data)
            return
        if self._waiting is None:
            self._waiting = self.loop.call_later(PATIENCE, self.transport.close)
        self._heard += len(data)
        super().data_received(data)
        if not self._within and self._heard > MOST and not self.transport.is_closing():
            body = error_bytes(431, f"the headers may have {MOST >> 10} KiB: send fewer")
            head = TOO_LARGE + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(head + body)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """A request is known; its body has limits of its own."""
        self._within = True
        self._rest()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next bytes are those of another request."""
        self._within, self._heard = False, 0
        super().on_message_complete()

    def _rest(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
