"""Cancellation of long computations, and yielding to other work between forward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_still_wanted: ContextVar[Callable[[], bool] | None] = ContextVar("still_wanted", default=None)
_yield_turn: ContextVar[Callable[[], None] | None] = ContextVar("yield_turn", default=None)
_max_tokens: ContextVar[int | None] = ContextVar("max_tokens", default=None)


class GenerationCancelled(Exception):
    """Nobody waits for the result any more."""


@contextmanager
def cancellable(still_wanted: Callable[[], bool]) -> Iterator[None]:
    """Inside, `check_cancelled` raises `GenerationCancelled` once `still_wanted()` is False."""
    token = _still_wanted.set(still_wanted)
    try:
        yield
    finally:
        _still_wanted.reset(token)


@contextmanager
def yield_between_passes(yield_turn: Callable[[], None] | None, max_tokens: int) -> Iterator[None]:
    """Inside, a forward pass has at most `max_tokens` tokens, and `yield_turn` is called between passes."""
    reset_tokens = _yield_turn.set(yield_turn), _max_tokens.set(max_tokens)
    try:
        yield
    finally:
        _yield_turn.reset(reset_tokens[0])
        _max_tokens.reset(reset_tokens[1])


def max_tokens_per_pass(default: int) -> int:
    """Maximum tokens of a forward pass, padding included: `default`, or fewer inside `yield_between_passes`."""
    limit = _max_tokens.get()
    return default if limit is None else min(default, limit)


def check_cancelled() -> None:
    """Call between decoding steps or forward passes: raises `GenerationCancelled` or yields to other work."""
    still_wanted, yield_turn = _still_wanted.get(), _yield_turn.get()
    if still_wanted is not None and not still_wanted():
        raise GenerationCancelled
    if yield_turn is not None:
        yield_turn()
