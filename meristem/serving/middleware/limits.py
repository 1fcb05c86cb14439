"""Request limits: number and size of headers, size and timeout of the body, content type, JSON depth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meristem.serving.errors import RequestError
from meristem.serving.middleware.admission import SCOPE_CLIENT
from meristem.serving.settings import ServingSettings
from meristem.utils import untrusted_files

MAX_HEADERS = 64
"""Maximum number of headers."""
MAX_HEADER_BYTES = 16 << 10
"""Maximum bytes of all header names and values."""
MAX_PATH_BYTES = 2048
MAX_JSON_DEPTH = 32
MAX_JSON_ITEMS = 1 << 17
"""Maximum brackets and commas of a body; prompts may be lists of token ids."""
OVERSIZE_READ_FACTOR = 8
"""Bodies up to this many times too large are read to the end and discarded: a client whose connection is closed while
it sends may never see the error."""


class RequestLimitsMiddleware:
    """ASGI middleware that reads and checks the whole body before the application is called."""

    def __init__(self, app: ASGIApp, settings: ServingSettings, early: Callable[[str], None]) -> None:
        """`early` is called with the client's name, and may refuse the request before its body is read."""
        self._app, self._settings, self._check_admission = app, settings, early
        self._json_limits = untrusted_files.ParseLimits(
            max_bytes=settings.max_body_bytes, max_items=MAX_JSON_ITEMS, max_objects=1 << 12, max_depth=MAX_JSON_DEPTH
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on with a body that is valid JSON."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _check_headers(scope)
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._check_admission(scope.get(SCOPE_CLIENT, ""))
        if headers.get(b"content-encoding", b"identity").lower() not in (b"", b"identity"):
            raise RequestError(415, "compressed bodies are not supported: send plain JSON")
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
            raise RequestError(415, "send a JSON body with content-type: application/json")
        body = await self._read_body(headers, receive)
        try:
            untrusted_files.parse_strict_json(body, self._json_limits)
        except ValueError as error:
            raise RequestError(400, f"the body is not valid JSON: {error}") from None
        pending_body = [body]

        async def replay_receive() -> Message:
            if pending_body:
                return {"type": "http.request", "body": pending_body.pop(), "more_body": False}
            return await receive()

        await self._app(scope, replay_receive, send)

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body; raises if it is too large or too slow, or if the client disconnects."""
        max_bytes, content_length = self._settings.max_body_bytes, headers.get(b"content-length", b"0")
        expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        if not content_length.isdigit() or int(content_length) > (
            max_bytes if expects_continue else OVERSIZE_READ_FACTOR * max_bytes
        ):
            raise self._too_large_error()
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                return await self._receive_body(receive, max_bytes)
        except TimeoutError:
            raise RequestError(
                408, f"the body did not arrive within {self._settings.body_timeout:g} s: send it again"
            ) from None

    async def _receive_body(self, receive: Receive, max_bytes: int) -> bytes:
        body, size = bytearray(), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError(400, "the client disconnected before the end of its request")
            size += len(message.get("body", b""))
            if size <= max_bytes:
                body += message.get("body", b"")
            else:
                body.clear()
            is_last = not message.get("more_body", False)
            if size > OVERSIZE_READ_FACTOR * max_bytes or (is_last and size > max_bytes):
                raise self._too_large_error()
            if is_last:
                return bytes(body)

    def _too_large_error(self) -> RequestError:
        return RequestError(413, f"the body is larger than {self._settings.max_body_bytes:,} bytes: send less")


def _check_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name; raises if they or the path are too large."""
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    if len(pairs) > MAX_HEADERS or sum(len(name) + len(value) for name, value in pairs) > MAX_HEADER_BYTES:
        limit = f"{MAX_HEADERS} headers of {MAX_HEADER_BYTES >> 10} KiB in total"
        raise RequestError(431, f"a request may have at most {limit}: send fewer")
    if len(scope.get("raw_path") or scope["path"].encode("utf-8", "replace")) > MAX_PATH_BYTES:
        raise RequestError(414, f"a path may have at most {MAX_PATH_BYTES:,} bytes")
    return dict(pairs)
