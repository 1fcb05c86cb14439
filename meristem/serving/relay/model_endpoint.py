"""The model process's end of the relay: runs the application for every request that the HTTP process sends."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Scope

from meristem.config.errors import MeristemError
from meristem.serving.errors import to_request_error
from meristem.serving.middleware.admission import SCOPE_CLIENT, SCOPE_CONTEXT, RequestContext
from meristem.serving.middleware.headers import SCOPE_METRICS
from meristem.serving.relay.frames import FrameConnection, FrameKind, decode_fields, decode_headers, encode_fields

MAX_UNSENT_BYTES = 1 << 16
"""Bytes of a response that its client's connection has not taken, beyond which a stream waits."""
HTTP_PROCESS_TIMEOUT = 5.0
"""Seconds within which the HTTP process ends after the model process has closed its socket."""


class ModelEndpoint:
    """Answers requests of the HTTP process, each in a task of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._loop = app, asyncio.get_running_loop()
        self.connection = FrameConnection(self._on_frame, self._on_lost)
        self.stopped: asyncio.Future[int] = self._loop.create_future()
        """Number of requests that were cut off, once the HTTP process has stopped."""
        self._responses: dict[int, _RelayedResponse] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def _on_frame(self, kind: FrameKind, number: int, payload: bytes) -> None:
        match kind:
            case FrameKind.REQUEST:
                fields, body = decode_fields(payload)
                response = self._responses[number] = _RelayedResponse(self.connection, number, fields, body)
                task = self._loop.create_task(self._answer(number, response))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case FrameKind.CANCEL if number in self._responses:
                self._responses[number].context.close()
            case FrameKind.CREDIT if number in self._responses:
                self._responses[number].add_credit(int(payload))
            case FrameKind.STOPPED:
                self.stopped.set_result(int(payload))

    async def _answer(self, number: int, response: _RelayedResponse) -> None:
        try:
            await self._app(response.scope, response.receive, response.send)
        except Exception as error:  # one that the exception handler has answered is in the log
            if response.is_open:
                to_request_error(error, response.scope["path"])
        finally:
            del self._responses[number]
            response.close()

    def _on_lost(self) -> None:
        for response in self._responses.values():
            response.context.close()
        if not self.stopped.done():
            self.stopped.set_exception(MeristemError("the HTTP process ended unexpectedly; see its messages above"))


class _RelayedResponse:
    """One request, and its response on the way back."""

    def __init__(self, connection: FrameConnection, number: int, fields: dict[str, Any], body: bytes) -> None:
        self._connection, self._number, self._body = connection, number, [body]
        self.context = RequestContext(fields.get("timeout", 60.0), fields["client"])
        self.scope = _scope(fields, self.context)
        self._head: dict[str, Any] | None = None
        self._is_over, self._num_unsent = False, 0
        self._has_credit = asyncio.Event()
        self.context.disconnected.add_done_callback(lambda _: self._has_credit.set())

    @property
    def is_open(self) -> bool:
        """Whether the client waits for more of the response."""
        return not self._is_over and self.context.is_active

    async def receive(self) -> Message:
        """The body, then the end of the client."""
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self.context.disconnected
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the response; a stream waits while the client does not read."""
        if message["type"] == "http.response.start":
            self._head = {"status": message["status"], "headers": list(message.get("headers", ()))}
            return
        body, has_more = message.get("body", b""), message.get("more_body", False)
        if self._is_over or (has_more and not body):
            return
        kind = FrameKind.BODY if has_more else FrameKind.END
        if self._head is not None:
            kind, body_size = FrameKind.HEAD if has_more else FrameKind.RESPONSE, len(body)
            body, self._head = encode_fields(self._head, body), None
        else:
            body_size = len(body)
        self._is_over = not has_more
        self._connection.send(kind, self._number, body)
        self._num_unsent += body_size
        while has_more and self._num_unsent > MAX_UNSENT_BYTES and not self.context.disconnected.done():
            self._has_credit.clear()
            await self._has_credit.wait()

    def add_credit(self, num_bytes: int) -> None:
        """The client's connection has taken so many bytes."""
        self._num_unsent -= num_bytes
        self._has_credit.set()

    def close(self) -> None:
        """The application has ended; a response without an end is cut off."""
        if not self._is_over:
            self._connection.send(FrameKind.ABORT, self._number)
        self.context.close()


def _scope(fields: dict[str, Any], context: RequestContext) -> Scope:
    path = fields["path"]
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},  # 2.4: a stream needs no task that listens for its end
        "http_version": "1.1",
        "scheme": "http",
        "server": None,
        "client": None,
        "root_path": "",
        "method": fields["method"],
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": fields["query_string"].encode("latin-1"),
        "headers": decode_headers(fields["headers"]),
        SCOPE_CONTEXT: context,
        SCOPE_CLIENT: fields["client"],
    }
    return {**scope, SCOPE_METRICS: fields["metrics"]} if "metrics" in fields else scope


@contextmanager
def http_process(bound_socket: socket.socket) -> Iterator[socket.socket]:
    """The socket to the HTTP process, which ends with it; a group of its own, so that Ctrl-C reaches only this one."""
    ours, theirs = socket.socketpair()
    fds = (bound_socket.fileno(), theirs.fileno())
    command = [sys.executable, "-m", "meristem.serving.relay.http_process", *map(str, fds)]
    process = subprocess.Popen(command, pass_fds=fds, process_group=0)
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        bound_socket.close()
        try:
            process.wait(HTTP_PROCESS_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def answer_requests(app: FastAPI, relay_socket: socket.socket, start: dict[str, Any]) -> tuple[int, int]:
    """Answer what the HTTP process relays until a signal arrives; returns its number, and how many were cut off.

    A second Ctrl-C cuts off running requests.
    """
    loop, endpoint = asyncio.get_running_loop(), ModelEndpoint(app)
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        endpoint.connection.send(FrameKind.STOP, payload=b"%d" % number)

    await loop.create_unix_connection(lambda: endpoint.connection, sock=relay_socket)
    async with app.router.lifespan_context(app):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        endpoint.connection.send(FrameKind.START, payload=encode_fields(start))
        cut_off = await endpoint.stopped
    endpoint.connection.close()
    if not received:
        raise MeristemError("the HTTP process stopped unexpectedly; see its messages above")
    return received[0], cut_off
