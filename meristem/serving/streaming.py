"""Server-sent events: what is sent piece by piece while it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

from meristem import bounded
from meristem.serving.admission import Gone
from meristem.serving.batching import told
from meristem.serving.errors import error_object


def event(data: Any) -> str:
    """One event; JSON has no line breaks, so that it is one line."""
    return f"data: {bounded.to_json(data)}\n\n"


async def events(made: AsyncIterator[str]) -> StreamingResponse:
    """A response that goes on; what is wrong before its first event is an error like any other."""
    first = await anext(made)
    return StreamingResponse(_guarded(first, made), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _guarded(first: str, rest: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """The events, and an error as the last of them: the status has long been sent."""
    yield first.encode("utf-8", "replace")
    try:
        async for one in rest:
            yield one.encode("utf-8", "replace")
    except Gone:
        return
    except Exception as error:
        wrong = told(error, "a stream")
        yield ("event: error\n" + event(error_object(wrong.status, str(wrong)))).encode("utf-8", "replace")
