"""Server-sent events: streaming responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

from meristem.serving.errors import error_object, to_request_error
from meristem.serving.middleware.admission import ClientDisconnected
from meristem.utils import untrusted_files


def format_event(data: Any) -> str:
    """One event; JSON without line breaks fits on its one line."""
    return f"data: {untrusted_files.to_json(data)}\n\n"


async def event_response(event_stream: AsyncIterator[str]) -> StreamingResponse:
    """A streaming response; an error before the first event becomes an ordinary error response."""
    first = await anext(event_stream)
    return StreamingResponse(
        _with_error_event(first, event_stream), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


async def _with_error_event(first: str, rest: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """The events; a later error is sent as the last event, because the status has already been sent."""
    yield first.encode("utf-8", "replace")
    try:
        async for text in rest:
            yield text.encode("utf-8", "replace")
    except ClientDisconnected:
        return
    except Exception as error:
        request_error = to_request_error(error, "a stream")
        event = format_event(error_object(request_error.status, str(request_error)))
        yield f"event: error\n{event}".encode("utf-8", "replace")
