"""The outermost middleware: security headers on every response, request metrics, and error responses."""

from __future__ import annotations

import time

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meristem.serving.errors import RequestError, encode_error, to_request_error
from meristem.serving.prometheus_metrics import RequestMetrics

SECURITY_HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
"""Headers added to every response that does not set its own."""
SCOPE_METRICS = "meristem.request_metrics"
"""Scope key of the request metrics as text, for the route that shows all metrics."""
METRICS_PATH = "/metrics"
CLOSING_STATUSES = (408, 413, 431)
"""Statuses after which the connection is closed, without reading the rest of the request."""


class ResponseHeadersMiddleware:
    """ASGI middleware that adds headers, records metrics, and turns exceptions into error responses."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; an exception before the response has started becomes an error response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start_time, status = time.monotonic(), 0
        if scope["path"] == METRICS_PATH:
            scope[SCOPE_METRICS] = self._metrics.render()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present_names = {name.lower() for name, _ in message.get("headers", ())}
                missing_headers = [
                    (name, value) for name, value in SECURITY_HEADERS.items() if name not in present_names
                ]
                message = {**message, "headers": [*message.get("headers", ()), *missing_headers]}
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise  # the response has started, and is cut off
            await error_response(to_request_error(error, scope["path"]))(scope, receive, send_with_headers)
        finally:
            self._metrics.record_request(scope["path"], status or 499, time.monotonic() - start_time)


def error_response(error: RequestError) -> Response:
    """The response to a request that failed."""
    closing = {"connection": "close"} if error.status in CLOSING_STATUSES else {}
    body = encode_error(error.status, str(error))
    return Response(body, error.status, {**error.headers, **closing}, "application/json")
