"""Search queries, each with a good or bad result line."""

from __future__ import annotations

from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.search_queries import draw_intent, draw_line


def row(request: SampleRequest) -> Row:
    """A query and a line."""
    intent = draw_intent(request.seed, request.number, request.language)
    return {"query": intent.query, "text": draw_line(intent, request.rng)}
