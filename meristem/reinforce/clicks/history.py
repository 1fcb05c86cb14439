"""Top K of the texts generated so far for each query: a bounded history as plain JSON, updated by pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from meristem.errors import MeristemError

Entry = Sequence[float | str]
"""[text, log-odds, spread]."""
History = Mapping[str, Sequence[Sequence[float | str]]]
"""Query → its entries, the best first."""

CHARACTERS = 2_000_000
"""Of all queries and texts kept; a checkpoint holds the history in its state.json, which may have 16 MiB."""


def updated(history: History | None, seen: Sequence[tuple[str, str, float, float]], top: int) -> History:
    """The history after texts (query, text, log-odds, spread) were seen: the `top` best of each query.

    Whatever the order of `seen`, the result is the same: equal texts count once at their best, ties go by the text.
    Beyond `CHARACTERS` the queries that were asked least recently are dropped.
    """
    asked: dict[str, dict[str, tuple[float, float]]] = {}
    for query, text, odds, spread in seen:
        own = asked.setdefault(query, {})
        own[text] = max(own.get(text, (odds, spread)), (odds, spread))
    out = {query: entries for query, entries in (history or {}).items() if query not in asked}
    for query in sorted(asked):
        kept = {str(text): (float(odds), float(spread)) for text, odds, spread in (history or {}).get(query, ())}
        for text, pair in asked[query].items():
            kept[text] = max(kept.get(text, pair), pair)
        best = sorted(kept, key=lambda text: (-kept[text][0], text))[:top]
        out[query] = [[text, *kept[text]] for text in best]
    return _bounded(out)


def checked(history: Any) -> History:
    """A history as it was read from a checkpoint, which may be a stranger's; anything else than one is refused."""
    found = {} if history is None else history
    whole = isinstance(found, dict) and all(isinstance(some, list) for some in found.values())
    if not whole or not all(_entry(one) for some in found.values() for one in some):
        raise MeristemError("state.json: the history of clicks is not what a run writes: the file was changed")
    return found


def _entry(value: Any) -> bool:
    """Whether a value is [text, log-odds, spread], the spread above zero."""
    if not isinstance(value, list | tuple) or len(value) != 3 or not isinstance(value[0], str):
        return False
    numbers = [one for one in value[1:] if type(one) in (int, float) and isfinite(one)]
    return len(numbers) == 2 and numbers[1] > 0


def _bounded(history: dict[str, Sequence[Sequence[float | str]]]) -> History:
    """Without the oldest queries, where there are too many."""
    sizes = {query: len(query) + sum(len(str(one[0])) for one in some) for query, some in history.items()}
    total = sum(sizes.values())
    for query in list(history):
        if total <= CHARACTERS or len(history) == 1:
            break
        total -= sizes[query]
        del history[query]
    return history
