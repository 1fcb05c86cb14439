"""Queries: what people search for, with a line that somebody wrote for it, good or bad."""

from __future__ import annotations

from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.searching import drawn, line


def row(ask: Ask) -> Row:
    """A query and a line."""
    of = drawn(ask.seed, ask.number, ask.language)
    return {"query": of.query, "text": line(of, ask.dice)}
