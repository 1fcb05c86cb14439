"""HTTP connections with timeouts for headers, bodies and clients that do not read; early 429 responses."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from meristem.serving.errors import RequestError, encode_error
from meristem.serving.middleware.early_rejection import EarlyRejection

HEADER_TIMEOUT = 10.0
"""Seconds from opening a connection, or from a request's first byte, to the end of its headers."""
BODY_TIMEOUT = 15.0
"""Seconds from the end of the headers to the end of the body."""
WRITE_STALL_TIMEOUT = 10.0
"""Seconds after which a client that reads nothing of a pending response is disconnected."""
DRAIN_TIMEOUT = 60.0
"""Seconds that the write buffer of a slow client may stay full."""
MAX_HEADER_BYTES = 32 << 10
"""Maximum size of incomplete headers."""
MAX_BODY_CHUNKS = 4096
"""Maximum number of chunks of a body: a chunk of one byte costs as much as a large one."""


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """False for uvicorn's line about a response without an end: whoever does not read its stream would fill the log."""
    return "without completing response" not in str(record.msg)


log = logging.getLogger("uvicorn.error.connections")
log.addFilter(_is_worth_logging)


class TimeoutHttpProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol with timeouts for slow clients."""

    def __init__(self, *arguments: Any, early_rejection: EarlyRejection | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = log
        self._early_rejection, self._rejected, self._num_body_chunks = early_rejection, False, 0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._num_header_bytes = 0
        self._in_body = False
        self._idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Start the header timeout; near the connection limit, close the connection that has been idle longest."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._read_timer = self.loop.call_later(HEADER_TIMEOUT, self.transport.close)
        # a little below the limit: the request may arrive before the idle connection is closed
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) > limit - max(2, limit // 16):
            self._drop_idle_connection()

    def _drop_idle_connection(self) -> None:
        """Close the connection that has been idle longest: idle connections must not block new ones."""
        others = (
            connection
            for connection in self.connections
            if isinstance(connection, TimeoutHttpProtocol) and connection is not self
        )
        idle = [connection for connection in others if connection._is_idle and not connection.transport.is_closing()]
        if idle:
            min(idle, key=lambda connection: connection._idle_since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._cancel_read_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The write buffer is full: start to check that the client reads."""
        super().pause_writing()
        buffered_bytes = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(
            WRITE_STALL_TIMEOUT, self._check_client_reads, buffered_bytes, self.loop.time() + DRAIN_TIMEOUT
        )

    def resume_writing(self) -> None:
        """The write buffer has drained: stop checking."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _check_client_reads(self, previous_bytes: int, deadline: float) -> None:
        """Disconnect a client that has read nothing since the last check, or that lags for too long."""
        buffered_bytes = self.transport.get_write_buffer_size()
        if buffered_bytes >= previous_bytes or self.loop.time() >= deadline:
            self.transport.abort()
        else:
            self._write_timer = self.loop.call_later(
                WRITE_STALL_TIMEOUT, self._check_client_reads, buffered_bytes, deadline
            )

    def data_received(self, data: bytes) -> None:
        """Pass data on; counts the bytes of headers."""
        if self._in_body:  # bodies are limited by the middleware
            super().data_received(data)
            return
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(HEADER_TIMEOUT, self.transport.close)
        self._num_header_bytes += len(data)
        super().data_received(data)
        if not self._in_body and self._num_header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            message = f"the headers are larger than {MAX_HEADER_BYTES >> 10} KiB: send fewer"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)

    def on_headers_complete(self) -> None:
        """The headers are complete: start the body timeout, and reject early if the server is full."""
        self._in_body, self._num_body_chunks = True, 0
        self._cancel_read_timer()
        self._idle_since = self.loop.time()
        self._read_timer = self.loop.call_later(BODY_TIMEOUT, self.transport.abort)
        response = self._early_response()
        self._rejected = response is not None
        if response is None:
            super().on_headers_complete()
        else:
            self.transport.write(response)
            self.on_response_complete()

    def _early_response(self) -> bytes | None:
        """The 429 response, without calling the application; None if the request is not rejected."""
        keeps_alive = self.parser.should_keep_alive() and not self.parser.should_upgrade()
        if self._early_rejection is None or not self._is_idle or not keeps_alive or self.expect_100_continue:
            return None  # a client that waits for 100 Continue sends no body, and the parser would wait for it
        path = self.url.partition(b"?")[0].decode("latin-1")
        method = self.parser.get_method().decode("ascii")
        return self._early_rejection.reject(
            {"method": method, "path": path, "headers": self.headers, "client": self.client}
        )

    @property
    def _is_idle(self) -> bool:
        """Whether no response is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def on_body(self, body: bytes) -> None:
        """Pass a chunk on; too many are refused, and the body of a rejected request is discarded."""
        self._num_body_chunks += 1
        if self._num_body_chunks > MAX_BODY_CHUNKS:
            # the parser stops with an error, and the client gets a 400
            raise RequestError(400, f"a body may have at most {MAX_BODY_CHUNKS:,} chunks")
        if not self._rejected:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; the next bytes start another one."""
        self._in_body, self._num_header_bytes = False, 0
        self._cancel_read_timer()
        if not self._rejected:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """A 400 response in the JSON format of all other errors."""
        has_too_many = self._num_body_chunks > MAX_BODY_CHUNKS
        note = f" (a body may have at most {MAX_BODY_CHUNKS:,} chunks)" if has_too_many else ""
        self._refuse(HTTPStatus.BAD_REQUEST, msg + note)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Send an error response and close the connection."""
        body = encode_error(status, message)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _cancel_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
