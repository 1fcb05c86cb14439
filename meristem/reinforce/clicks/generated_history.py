"""Top K of the texts generated so far for each query: a bounded history as plain JSON, updated by pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from meristem.config.errors import MeristemError

HistoryEntry = Sequence[float | str]
"""[text, log-odds, standard deviation]."""
GeneratedHistory = Mapping[str, Sequence[Sequence[float | str]]]
"""Query → its entries, best first."""

MAX_CHARACTERS = 2_000_000
"""Total size of queries and texts; a checkpoint stores the history in its state.json, which may have 16 MiB."""


def update_history(
    history: GeneratedHistory | None, observations: Sequence[tuple[str, str, float, float]], top_k: int
) -> GeneratedHistory:
    """The history after new texts (query, text, log-odds, std): the `top_k` best of each query.

    Independent of the order of `observations`: equal texts count once, with their best value; ties go by the text.
    Beyond `MAX_CHARACTERS`, the least recently used queries are dropped.
    """
    by_query: dict[str, dict[str, tuple[float, float]]] = {}
    for query, text, log_odds, std in observations:
        query_texts = by_query.setdefault(query, {})
        query_texts[text] = max(query_texts.get(text, (log_odds, std)), (log_odds, std))
    new_history = {query: entries for query, entries in (history or {}).items() if query not in by_query}
    for query in sorted(by_query):
        merged = {str(text): (float(log_odds), float(std)) for text, log_odds, std in (history or {}).get(query, ())}
        for text, pair in by_query[query].items():
            merged[text] = max(merged.get(text, pair), pair)
        best = sorted(merged, key=lambda text: (-merged[text][0], text))[:top_k]
        new_history[query] = [[text, *merged[text]] for text in best]
    return _drop_oldest(new_history)


def validate_history(history: Any) -> GeneratedHistory:
    """Check a history that was read from a checkpoint, which may come from someone else."""
    mapping = {} if history is None else history
    is_mapping = isinstance(mapping, dict) and all(isinstance(entries, list) for entries in mapping.values())
    if not is_mapping or not all(_is_entry(entry) for entries in mapping.values() for entry in entries):
        raise MeristemError("state.json: the history of clicks is invalid: the file was changed")
    return mapping


def _is_entry(value: Any) -> bool:
    """Whether a value is [text, log-odds, std] with a positive std."""
    if not isinstance(value, list | tuple) or len(value) != 3 or not isinstance(value[0], str):
        return False
    numbers = [number for number in value[1:] if type(number) in (int, float) and isfinite(number)]
    return len(numbers) == 2 and numbers[1] > 0


def _drop_oldest(history: dict[str, Sequence[Sequence[float | str]]]) -> GeneratedHistory:
    """Drop the oldest queries while the history is too large."""
    sizes = {query: len(query) + sum(len(str(entry[0])) for entry in entries) for query, entries in history.items()}
    total = sum(sizes.values())
    for query in list(history):
        if total <= MAX_CHARACTERS or len(history) == 1:
            break
        total -= sizes[query]
        del history[query]
    return history
