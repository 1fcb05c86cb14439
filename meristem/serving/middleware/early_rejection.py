"""Early rejection under overload: a 429 response from the request's headers alone, before its body is read.

Under overload most requests are refused, and the cost of refusing them is taken from the admitted ones.
"""

from __future__ import annotations

from meristem.serving.errors import RequestError
from meristem.serving.middleware.admission import AdmissionController, Scope
from meristem.serving.middleware.auth import APIKeys, authenticate
from meristem.serving.middleware.headers import SECURITY_HEADERS, error_response
from meristem.serving.prometheus_metrics import ServerMetrics

STATUS_LINE = b"HTTP/1.1 429 Too Many Requests\r\n"
KEEP_ALIVE = b"keep-alive"
UNSUPPORTED_HEADERS = frozenset((b"transfer-encoding", b"expect", b"upgrade"))
"""Headers with which content-length does not give the end of a request."""


class EarlyRejection:
    """Rejects requests by looking at their headers only."""

    def __init__(self, admission: AdmissionController, keys: APIKeys | None, metrics: ServerMetrics) -> None:
        self._admission, self._keys, self._metrics = admission, keys, metrics
        self._responses: dict[int, bytes] = {}
        """Encoded 429 responses by retry_after, the only part that varies."""

    def reject_bytes(self, data: bytes, client: tuple[str, int] | None = None) -> bytes | None:
        """The 429 response to bytes that are exactly one request; None if it is admitted or needs a full parser."""
        if not self._admission.near_capacity:
            return None
        scope = _parse_head(data)
        return None if scope is None else self.reject({**scope, "client": client})

    def reject(self, scope: Scope) -> bytes | None:
        """The encoded 429 response to a request without a slot; None if the application should handle it."""
        if scope["method"] != "POST" or not self._admission.near_capacity or self._admission.stopping:
            return None
        try:
            client = authenticate(scope, self._keys)
        except RequestError:
            return None  # the application answers 401 or 403, which says nothing about the load
        if not self._admission.is_full(client):
            return None
        retry_after = self._admission.retry_after
        if retry_after not in self._responses:
            self._responses[retry_after] = _encode_response(self._admission.rejection(retry_after))
        self._metrics.record_request(scope["path"], 429, 0.0)
        return self._responses[retry_after]


def _parse_head(data: bytes) -> Scope | None:
    """Method, path and headers of a complete plain HTTP/1.1 request; None if it is anything else."""
    head, _, body = data.partition(b"\r\n\r\n")
    request_line, *lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    header_values = dict(headers)
    is_plain = (
        len(header_values) == len(headers)
        and header_values.keys().isdisjoint(UNSUPPORTED_HEADERS)
        and request_line.endswith(b" HTTP/1.1")
    )
    if (
        not is_plain
        or header_values.get(b"content-length") != b"%d" % len(body)
        or header_values.get(b"connection", KEEP_ALIVE).lower() != KEEP_ALIVE
    ):
        return None
    method, _, rest = request_line.decode("latin-1").partition(" ")
    path = rest.removesuffix(" HTTP/1.1").partition("?")[0]
    return {"method": method, "path": path, "headers": headers}


def _encode_response(error: RequestError) -> bytes:
    headers, body = error_response(error)
    return (
        STATUS_LINE + b"".join(b"%b: %b\r\n" % pair for pair in (*headers, *SECURITY_HEADERS.items())) + b"\r\n" + body
    )
