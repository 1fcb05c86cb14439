"""Settings in which two resolved recipes differ, by their dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meristem.recipe import Recipe


def differing_settings(before: Recipe, now: Recipe) -> dict[str, tuple[str, str]]:
    """The dotted name of each setting that differs → its value before and now, as text."""
    old, new = dict(flat(before.plain())), dict(flat(now.plain()))
    return {
        key: (_shown(old, key), _shown(new, key)) for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)
    }


def flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a recipe by its dotted name; of a list of parts each by the part's own."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            name = inner.get("name", number)
            yield from flat(inner, f"{place}.{name}")
    else:
        yield place, list(value) if isinstance(value, tuple) else value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
