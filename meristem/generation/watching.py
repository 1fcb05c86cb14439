"""Writing that somebody waits for: between two tokens it is asked whether anybody still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("asked", default=None)


class Abandoned(Exception):
    """Nobody waits for what was being written."""


@contextmanager
def watched(wanted: Callable[[], bool]) -> Iterator[None]:
    """What is written inside ends with `Abandoned` as soon as it is no longer wanted."""
    token = _asked.set(wanted)
    try:
        yield
    finally:
        _asked.reset(token)


def go_on() -> None:
    """Called between two tokens."""
    wanted = _asked.get()
    if wanted is not None and not wanted():
        raise Abandoned
