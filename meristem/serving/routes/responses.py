"""Response bodies shared by the routes: results with the model's name, and errors."""

from __future__ import annotations

from typing import Any, cast

from fastapi import Request, Response

from meristem.config.settings import Settings
from meristem.serving.json_response import json_response
from meristem.serving.middleware.admission import SCOPE_CONTEXT, RequestContext
from meristem.serving.model_registry import ServedRun


class ErrorDetail(Settings):
    """Details of an error."""

    message: str
    """What is wrong, and what to do."""
    type: str
    """The kind of error."""
    param: str | None
    """The invalid field of the request, if it is one."""
    code: str | None
    """Always null; part of OpenAI's error format."""


class ErrorResponse(Settings):
    """The body of an error response."""

    error: ErrorDetail
    """Details of the error."""


ERROR_DESCRIPTIONS = {
    400: "The body is not valid JSON or has invalid values.",
    401: "An API key is required.",
    404: "There is no such run.",
    408: "The request arrived too slowly.",
    413: "The request is too large.",
    415: "The body is not plain JSON.",
    422: "The request cannot be fulfilled.",
    429: "Too many requests; Retry-After says when to retry.",
    500: "Internal server error; see the server log.",
    503: "The request timed out, or the server is stopping.",
}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description} for status, description in ERROR_DESCRIPTIONS.items()
}


def request_context(request: Request) -> RequestContext:
    """The context that the admission middleware created for a request."""
    return cast(RequestContext, request.scope[SCOPE_CONTEXT])


async def model_response(run: ServedRun, outputs: list[Any], request_value: object) -> Response:
    """`answer` for a single input, `answers` in input order for a list."""
    answer_fields = {"answers": outputs} if isinstance(request_value, list) else {"answer": outputs[0]}
    return await json_response({"model": run.name, **answer_fields})
