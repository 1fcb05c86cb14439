"""Numbers as JSON can hold them."""

from __future__ import annotations

import math

LEAST = -9999.0
"""What stands for the logarithm of a probability that is nothing, as OpenAI's own routes have it."""


def finite(logprob: float) -> float:
    """A log-probability that can be written down."""
    return logprob if math.isfinite(logprob) else LEAST
