"""What a client is told when something is wrong: one sentence, in the shape that OpenAI's clients know."""

from __future__ import annotations

from typing import Any

from meristem import bounded
from meristem.errors import MeristemError

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 500: "server_error",
         503: "server_error"}  # fmt: skip


class Refused(MeristemError):
    """A request that gets another status than 200."""

    def __init__(self, status: int, text: str, *, param: str | None = None, after: int | None = None) -> None:
        """`param` is the part of the request that is wrong, `after` the seconds after which to try again."""
        super().__init__(text)
        self.status, self.param, self.after = status, param, after

    @property
    def headers(self) -> dict[str, str]:
        """What a status asks for besides."""
        found = {} if self.after is None else {"retry-after": str(self.after)}
        return {**found, "www-authenticate": 'Basic realm="Meristem"'} if self.status == 401 else found


def error_object(status: int, text: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an error."""
    kind = TYPES.get(status, "invalid_request_error")
    return {"error": {"message": text, "type": kind, "param": param, "code": code}}


def error_bytes(status: int, text: str) -> bytes:
    """The same as it travels."""
    return bounded.to_json(error_object(status, text)).encode("utf-8", "replace")
