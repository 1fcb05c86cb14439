"""JSON responses without NaN and infinities."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from typing import Any, TypeVar

from fastapi import Response
from fastapi.responses import JSONResponse

from meristem.utils import untrusted_files

MIN_LOGPROB = -9999.0
"""Log-probability reported for a probability of zero, as in OpenAI's API."""

STEP = 256
"""Things that are made in the event loop before others get their turn."""
T = TypeVar("T")


def finite_logprob(logprob: float) -> float | None:
    """A log-probability as JSON can hold it: None for NaN, `MIN_LOGPROB` for -inf."""
    return None if math.isnan(logprob) else logprob if math.isfinite(logprob) else MIN_LOGPROB


class FiniteJSONResponse(JSONResponse):
    """A JSON response with null for NaN and infinities, and a replacement for lone surrogates."""

    def render(self, content: Any) -> bytes:
        """The encoded body."""
        return untrusted_files.to_json_bytes(content)


async def in_steps(values: Iterable[T]) -> AsyncIterator[T]:
    """The same values, with a turn for every other request now and then."""
    for number, value in enumerate(values, 1):
        yield value
        if not number % STEP:
            await asyncio.sleep(0)


async def json_response(content: Any) -> Response:
    """As `FiniteJSONResponse`, with turns for other requests while a large answer is written."""
    parts = []
    for part in untrusted_files.json_parts(content):
        parts.append(part)
        if len(parts) > 1:
            await asyncio.sleep(0)
    return Response("".join(parts).encode("utf-8", "replace"), media_type="application/json")
