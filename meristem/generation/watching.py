"""Long computations that somebody waits for: between two steps they may be abandoned, or wait for their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("asked", default=None)
_yield_turn: ContextVar[Callable[[], None] | None] = ContextVar("yield_turn", default=None)
_tokens: ContextVar[int | None] = ContextVar("tokens", default=None)


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


@contextmanager
def in_turns(yield_turn: Callable[[], None] | None, tokens: int) -> Iterator[None]:
    """What is computed inside reads at most so many tokens in a pass, and calls `yield_turn` between two passes."""
    before = _yield_turn.set(yield_turn), _tokens.set(tokens)
    try:
        yield
    finally:
        _yield_turn.reset(before[0])
        _tokens.reset(before[1])


def tokens_per_pass(most: int) -> int:
    """How many tokens one pass reads, padding counted: `most`, or fewer where work is done in turns."""
    limit = _tokens.get()
    return most if limit is None else min(most, limit)


def go_on() -> None:
    """Called between two tokens that are written, or two passes of a text that is read."""
    wanted, yield_turn = _asked.get(), _yield_turn.get()
    if wanted is not None and not wanted():
        raise Abandoned
    if yield_turn is not None:
        yield_turn()
