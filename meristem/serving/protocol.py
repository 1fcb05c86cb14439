"""HTTP connections with timeouts: for headers, for bodies, and for clients that do not read; early 429 answers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from meristem.serving.errors import Refused, error_bytes
from meristem.serving.turnstile import Turnstile

PATIENCE = 10.0
"""Seconds from the opening of a connection, or from a request's first byte, to the end of its headers."""
BODY_PATIENCE = 15.0
"""Seconds from the end of the headers to the end of the body, whether or not anybody reads it."""
STALL = 10.0
"""Seconds after which a client that reads nothing of a waiting answer is disconnected."""
DRAIN = 60.0
"""Seconds that a client may be behind with reading, however slowly it reads."""
MOST = 32 << 10
"""Bytes of headers that are not yet whole."""
PIECES = 4096
"""Pieces that one body may come in: each of them, be it one byte, costs as much as a large one."""
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"


BAD = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"


class Patient(HttpToolsProtocol):
    """Uvicorn's way to speak HTTP, with an end to its patience."""

    def __init__(self, *arguments: Any, turnstile: Turnstile | None = None, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._turnstile, self._turned, self._pieces = turnstile, False, 0
        self._waiting: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._heard = 0
        self._within = False
        self._since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request; where there are too many connections, the longest idle one makes room."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._waiting = self.loop.call_later(PATIENCE, self.transport.close)
        # a little before the limit: the request may be read before the connection that makes room is gone
        most = self.limit_concurrency
        if most is not None and len(self.connections) > most - max(2, most // 16):
            self._make_room()

    def _make_room(self) -> None:
        """Disconnect whoever has been idle for longest: connections that only wait must not shut others out."""
        others = (one for one in self.connections if isinstance(one, Patient) and one is not self)
        idle = [one for one in others if one._idle and not one.transport.is_closing()]
        if idle:
            min(idle, key=lambda one: one._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._rest()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered: from now on it is watched."""
        super().pause_writing()
        waiting = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(STALL, self._look_at_reader, waiting, self.loop.time() + DRAIN)

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _look_at_reader(self, before: int, end: float) -> None:
        """Disconnect a client that has read nothing since the last look, or that is behind for too long."""
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before or self.loop.time() >= end:
            self.transport.abort()
        else:
            self._stalled = self.loop.call_later(STALL, self._look_at_reader, waiting, end)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to headers."""
        if self._within:  # of a body, which the limits of the application see
            super().data_received(data)
            return
        if not self._heard and self._idle and self._turnstile is not None:
            answer = self._turnstile.at_once(data, self.client)
            if answer is not None:
                self._rest()
                self._unset_keepalive_if_required()
                self.transport.write(answer)
                self.on_response_complete()
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
        self._within, self._pieces = True, 0
        self._rest()
        self._since = self.loop.time()
        self._waiting = self.loop.call_later(BODY_PATIENCE, self.transport.abort)
        answer = self._turned_away()
        self._turned = answer is not None
        if answer is None:
            super().on_headers_complete()
        else:
            self.transport.write(answer)
            self.on_response_complete()

    @property
    def _idle(self) -> bool:
        """Whether no answer is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _turned_away(self) -> bytes | None:
        """The answer to a request that need not reach the application."""
        lasts = self.parser.should_keep_alive() and not self.parser.should_upgrade()
        if self._turnstile is None or not self._idle or not lasts:
            return None
        path = self.url.partition(b"?")[0].decode("latin-1")
        method = self.parser.get_method().decode("ascii")
        return self._turnstile.turned(
            {"method": method, "path": path, "headers": self.headers, "client": self.client}
        )

    def on_body(self, body: bytes) -> None:
        """Of one that was turned away nothing is kept."""
        self._pieces += 1
        if self._pieces > PIECES:
            raise Refused(400, f"a body may come in {PIECES:,} pieces")  # the parser gives up, and the request is bad
        if not self._turned:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The next bytes are those of another request."""
        self._within, self._heard = False, 0
        self._rest()
        if not self._turned:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """In the shape of all other errors."""
        body = error_bytes(400, f"{msg} (a body may come in {PIECES:,} pieces)" if self._pieces > PIECES else msg)
        self.transport.write(BAD + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
        self.transport.close()

    def _rest(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
