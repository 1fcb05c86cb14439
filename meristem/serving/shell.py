"""The outermost part of the application: strict headers on every answer, counts, and errors that are answers too."""

from __future__ import annotations

import time

from meristem.serving.admission import App, Message, Receive, Scope, Send
from meristem.serving.batching import told
from meristem.serving.errors import Refused, error_bytes
from meristem.serving.metrics import Metrics

STRICT = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
"""A page of our own brings its own policy."""
CLOSING = (408, 413, 431)
"""After these the rest of a request is not waited for."""


class Shell:
    """What every request passes first and last."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count, and answer where nobody else did."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 0

        async def strictly(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message.get("headers", ())}
                more = [(name, value) for name, value in STRICT.items() if name not in present]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            await self._app(scope, receive, strictly)
        except Exception as error:
            if status:
                raise  # the answer has begun, and is cut off
            await _refuse(told(error, scope["path"]), strictly)
        finally:
            self._metrics.request(scope["path"], status or 499, time.monotonic() - begun)


def refusal(error: Refused) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of an answer that is none."""
    body = error_bytes(error.status, str(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    if error.status in CLOSING:
        headers.append((b"connection", b"close"))
    return headers, body


async def _refuse(error: Refused, send: Send) -> None:
    headers, body = refusal(error)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
