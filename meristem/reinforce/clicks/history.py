"""Top K of the texts generated so far for each query: a bounded history as plain JSON, updated by pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
