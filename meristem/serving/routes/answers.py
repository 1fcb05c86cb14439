"""What every route answers with: a run's name and what it said, or one sentence on what is wrong."""

from __future__ import annotations

from typing import Any, cast

from fastapi import Request, Response

from meristem.serving.admission import TICKET, Ticket
from meristem.serving.hub import Served
from meristem.serving.numbers import json_response
from meristem.settings import Settings


class Problem(Settings):
    """What is wrong with a request."""

    message: str
    """One sentence, with what to do."""
    type: str
    """The kind of error."""
    param: str | None
    """The part of the request that is wrong, where it is one."""
    code: str | None
    """Always empty here; clients of others expect it."""


class Wrong(Settings):
    """An answer that is none."""

    error: Problem
    """What is wrong."""


TOLD = {
    400: "The body is no JSON, or holds what cannot be.",
    401: "The server wants a key.",
    404: "There is no such run.",
    408: "The request came too slowly.",
    413: "The request is too large.",
    415: "The body is not plain JSON.",
    422: "The request asks for what cannot be.",
    429: "Too many requests are in work; Retry-After says when to come back.",
    500: "The server failed; its log says why.",
    503: "Not done in time, or the server is stopping.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Wrong, "description": told} for status, told in TOLD.items()
}


def ticket_of(request: Request) -> Ticket:
    """The ticket that the gate gave to a request."""
    return cast(Ticket, request.scope[TICKET])


async def answered(run: Served, found: list[Any], asked: object) -> Response:
    """One answer where one thing was asked, else a list of them in the order of what was asked."""
    said = {"answers": found} if isinstance(asked, list) else {"answer": found[0]}
    return await json_response({"model": run.name, **said})
