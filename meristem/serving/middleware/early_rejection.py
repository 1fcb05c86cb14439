"""Early rejection under overload: a 429 response as soon as the headers are parsed, without calling the application.

Under overload most requests are refused, and what a refusal costs is taken from the admitted ones.
"""

from __future__ import annotations

from starlette.types import Scope

from meristem.serving.errors import RequestError
from meristem.serving.middleware.admission import AdmissionController
from meristem.serving.middleware.auth import APIKeys, authenticate
from meristem.serving.middleware.headers import SECURITY_HEADERS, error_response
from meristem.serving.prometheus_metrics import RequestMetrics


class EarlyRejection:
    """The encoded 429 responses to requests without a slot."""

    def __init__(self, admission: AdmissionController, keys: APIKeys | None, metrics: RequestMetrics) -> None:
        self._admission, self._keys, self._metrics = admission, keys, metrics
        self._responses: dict[int, bytes] = {}
        """By the seconds of Retry-After, the only part that varies."""

    def reject(self, scope: Scope) -> bytes | None:
        """The response to a request without a slot; None if the application should answer."""
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
            self._responses[retry_after] = _encode(self._admission.rejection(retry_after))
        self._metrics.record_request(scope["path"], 429, 0.0)
        return self._responses[retry_after]


def _encode(error: RequestError) -> bytes:
    """The whole response, with the headers that every response has."""
    response = error_response(error)
    headers = [*response.raw_headers, *SECURITY_HEADERS.items()]
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    return b"HTTP/1.1 429 Too Many Requests\r\n" + lines + b"\r\n" + bytes(response.body)
