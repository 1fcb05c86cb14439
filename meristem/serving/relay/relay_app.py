"""The ASGI application of the HTTP process: passes requests on to the model process, and its responses back."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from itertools import count
from typing import Any

from starlette.types import Receive, Scope, Send

from meristem.serving.errors import RequestError
from meristem.serving.middleware.admission import SCOPE_CLIENT, SCOPE_CONTEXT, ClientDisconnected, RequestContext
from meristem.serving.middleware.headers import SCOPE_METRICS
from meristem.serving.relay.frames import FrameConnection, FrameKind, decode_fields, decode_headers, encode_fields

CREDIT_BYTES = 1 << 15
"""Bytes of a response after which the model process is told that they were sent."""


class _Exchange:
    """The frames of one response that have not been sent yet."""

    def __init__(self) -> None:
        self._frames: deque[tuple[FrameKind, bytes]] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, kind: FrameKind, payload: bytes = b"") -> None:
        """Add a frame."""
        self._frames.append((kind, payload))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> tuple[FrameKind, bytes]:
        """The next frame."""
        while not self._frames:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._frames.popleft()


class RelayApp:
    """Relays whole requests; frames of a response are sent as they come."""

    def __init__(self) -> None:
        self.connection = FrameConnection(self._on_frame, self._on_lost)
        self.started: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        """The settings and routes of the server, once the models are loaded."""
        self.on_stop: Any = None
        """Called with the number of a stop signal."""
        self._numbers = count(1)
        self._exchanges: dict[int, _Exchange] = {}
        self._is_lost = False

    def _on_frame(self, kind: FrameKind, number: int, payload: bytes) -> None:
        if kind is FrameKind.START:
            self.started.set_result(decode_fields(payload)[0])
        elif kind is FrameKind.STOP:
            self.on_stop(int(payload))
        elif number in self._exchanges:  # a request that was cancelled may still be answered
            self._exchanges[number].put(kind, payload)

    def _on_lost(self) -> None:
        """The model process has ended: running requests are answered 503, and the server stops."""
        self._is_lost = True
        if not self.started.done():
            self.started.cancel()
        for exchange in self._exchanges.values():
            exchange.put(FrameKind.ABORT)
        if self.on_stop is not None:
            self.on_stop(signal.SIGTERM)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send one request, whose body has been read by the middleware, and relay its response."""
        if self._is_lost:
            raise _lost_error()
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        context: RequestContext | None = scope.get(SCOPE_CONTEXT)
        number = next(self._numbers)
        self._exchanges[number] = exchange = _Exchange()
        if context is not None:
            context.disconnected.add_done_callback(lambda _: exchange.put(FrameKind.CANCEL))
        self.connection.send(FrameKind.REQUEST, number, encode_fields(_request_fields(scope, context), body))
        is_over = False
        try:
            is_over = await self._relay(number, exchange, send)
        finally:
            del self._exchanges[number]
            if not is_over:
                self.connection.send(FrameKind.CANCEL, number)

    async def _relay(self, number: int, exchange: _Exchange, send: Send) -> bool:
        """Send the response; True when it is complete."""
        has_begun, uncredited = False, 0
        while True:
            kind, payload = await exchange.get()
            if kind is FrameKind.CANCEL or (kind is FrameKind.ABORT and (has_begun or not self._is_lost)):
                raise ClientDisconnected
            if kind is FrameKind.ABORT:
                raise _lost_error()
            if kind in (FrameKind.HEAD, FrameKind.RESPONSE):
                fields, payload = decode_fields(payload)
                headers = decode_headers(fields["headers"])
                await send({"type": "http.response.start", "status": fields["status"], "headers": headers})
                has_begun = True
            is_last = kind in (FrameKind.END, FrameKind.RESPONSE)
            await send({"type": "http.response.body", "body": payload, "more_body": not is_last})
            if is_last:
                return True
            uncredited += len(payload)
            if uncredited >= CREDIT_BYTES:
                self.connection.send(FrameKind.CREDIT, number, b"%d" % uncredited)
                uncredited = 0


def _lost_error() -> RequestError:
    return RequestError(503, "the process that computes has ended, and the server stops: start it again")


def _request_fields(scope: Scope, context: RequestContext | None) -> dict[str, Any]:
    """What the model process needs to know of a request, besides its body."""
    fields = {name: scope[name] for name in ("method", "path", "query_string", "headers")}
    fields["client"] = scope.get(SCOPE_CLIENT, "")
    if context is not None:
        fields["timeout"] = context.remaining
    if SCOPE_METRICS in scope:
        fields["metrics"] = scope[SCOPE_METRICS]
    return fields
