"""Numbers as JSON can hold them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from typing import Any, TypeVar

from fastapi import Response
from fastapi.responses import JSONResponse

from meristem import bounded

LEAST = -9999.0
"""What stands for the logarithm of a probability that is nothing, as OpenAI's own routes have it."""

STEP = 256
"""Things that are made in the event loop before others get their turn."""
T = TypeVar("T")


def finite(logprob: float) -> float | None:
    """A log-probability that can be written down; none where the model has computed no number."""
    return None if math.isnan(logprob) else logprob if math.isfinite(logprob) else LEAST


class FiniteJSONResponse(JSONResponse):
    """A response in JSON that holds null for NaN and infinities, and a whole character for half of one."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return bounded.to_json(content).encode("utf-8", "replace")


async def in_steps(values: Iterable[T]) -> AsyncIterator[T]:
    """The same values, with a turn for every other request now and then."""
    for number, value in enumerate(values, 1):
        yield value
        if not number % STEP:
            await asyncio.sleep(0)


async def json_response(content: Any) -> Response:
    """As `FiniteJSONResponse`, with turns for other requests while a large answer is written."""
    parts = []
    for part in bounded.json_parts(content):
        parts.append(part)
        if len(parts) > 1:
            await asyncio.sleep(0)
    return Response("".join(parts).encode("utf-8", "replace"), media_type="application/json")
