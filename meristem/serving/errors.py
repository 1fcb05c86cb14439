"""HTTP errors: an exception with a status, and its JSON body in OpenAI's error format."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from meristem.config.errors import MeristemError
from meristem.utils.untrusted_files import to_json_bytes

log = logging.getLogger("meristem.serving")

ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
ERROR_TYPES |= dict.fromkeys((500, 503), "server_error")


class RequestError(MeristemError):
    """An error response with its HTTP status."""

    def __init__(self, status: int, message: str, *, param: str | None = None, retry_after: int | None = None) -> None:
        """`param` is the invalid field of the request, `retry_after` the seconds after which to retry."""
        super().__init__(message)
        self.status, self.param, self.retry_after = status, param, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Further response headers: Retry-After, and WWW-Authenticate for 401."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return {**headers, "www-authenticate": 'Basic realm="Meristem"'} if self.status == 401 else headers


def to_request_error(error: BaseException, operation: str) -> RequestError:
    """The error sent to the client; an unexpected error is logged with an id, and only the id is sent."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, MeristemError):
        return RequestError(422, str(error))
    error_id = uuid.uuid4().hex[:12]
    log.error("error %s in %s", error_id, operation, exc_info=error)
    return RequestError(500, f"internal server error; the server log has the details under error {error_id}")


def error_object(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an error response."""
    error_type = ERROR_TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def encode_error(status: int, message: str) -> bytes:
    """The encoded body of an error response."""
    return to_json_bytes(error_object(status, message))
