"""Numbers as JSON can hold them."""

from __future__ import annotations

import math
from typing import Any

from fastapi.responses import JSONResponse

from meristem import bounded

LEAST = -9999.0
"""What stands for the logarithm of a probability that is nothing, as OpenAI's own routes have it."""


def finite(logprob: float) -> float | None:
    """A log-probability that can be written down; none where the model has computed no number."""
    return None if math.isnan(logprob) else logprob if math.isfinite(logprob) else LEAST


class FiniteJSONResponse(JSONResponse):
    """A response in JSON that holds null for NaN and infinities, and a whole character for half of one."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return bounded.to_json(content).encode("utf-8", "replace")
