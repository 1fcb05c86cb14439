"""What a request may be before anything is made of it: its headers, its size, its time, its encoding, its depth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from meristem import bounded
from meristem.serving.admission import CLIENT, App, Message, Receive, Scope, Send
from meristem.serving.errors import Refused
from meristem.serving.settings import ServingSettings

HEADERS = 64
"""How many."""
HEADER_BYTES = 16 << 10
"""Of all names and values together."""
PATH_BYTES = 2048
DEPTH = 32
PARTS = 1 << 17
"""Brackets and commas of a body: prompts may be lists of tokens."""
HEARD_OUT = 8
"""Bodies so many times too large are read to their end, and forgotten: whose connection is closed while they send may
never see why."""


class Limits:
    """The part of the application that reads a body whole, within bounds, before the rest hears of it."""

    def __init__(self, app: App, settings: ServingSettings, early: Callable[[str], None]) -> None:
        """`early` may refuse a request whose body need not be read for that."""
        self._app, self._settings, self._early = app, settings, early
        self._bounds = bounded.Bounds(size=settings.body, parts=PARTS, objects=1 << 12, depth=DEPTH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or go on with a body that is JSON."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._early(scope.get(CLIENT, ""))
        if headers.get(b"content-encoding", b"identity").lower() not in (b"", b"identity"):
            raise Refused(415, "compressed bodies are not read: send plain JSON")
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
            raise Refused(415, "send a body of JSON, with content-type: application/json")
        body = await self._body(headers, receive)
        try:
            bounded.strict(body, self._bounds)
        except ValueError as error:
            raise Refused(400, f"the body is not JSON that is read here: {error}") from None
        rest = [body]

        async def replayed() -> Message:
            if rest:
                return {"type": "http.request", "body": rest.pop(), "more_body": False}
            return await receive()

        await self._app(scope, replayed, send)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """All of it, unless it is too large, too slow, or its sender leaves."""
        most, told = self._settings.body, headers.get(b"content-length", b"0")
        waits = headers.get(b"expect", b"").lower() == b"100-continue"
        if not told.isdigit() or int(told) > (most if waits else HEARD_OUT * most):
            raise self._large()
        try:
            async with asyncio.timeout(self._settings.patience):
                return await self._whole(receive, most)
        except TimeoutError:
            raise Refused(408, f"the body did not come within {self._settings.patience:g} s: send it again") from None

    async def _whole(self, receive: Receive, most: int) -> bytes:
        found, size = bytearray(), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the client left before its request was whole")
            size += len(message.get("body", b""))
            if size <= most:
                found += message.get("body", b"")
            else:
                found.clear()
            ends = not message.get("more_body", False)
            if size > HEARD_OUT * most or (ends and size > most):
                raise self._large()
            if ends:
                return bytes(found)

    def _large(self) -> Refused:
        return Refused(413, f"the body may have {self._settings.body:,} bytes: send less")


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """By name, unless there are too many of them."""
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    if len(pairs) > HEADERS or sum(len(name) + len(value) for name, value in pairs) > HEADER_BYTES:
        raise Refused(431, f"a request may have {HEADERS} headers and {HEADER_BYTES >> 10} KiB of them: send fewer")
    if len(scope.get("raw_path") or scope["path"].encode("utf-8", "replace")) > PATH_BYTES:
        raise Refused(414, f"an address may have {PATH_BYTES:,} bytes")
    return dict(pairs)
