"""Differences between two resolved recipes, by dotted setting name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meristem.config.recipe import Recipe


def differing_settings(old_recipe: Recipe, new_recipe: Recipe) -> dict[str, tuple[str, str]]:
    """Dotted name of each differing setting → (old value, new value) as text."""
    old, new = dict(flatten(old_recipe.to_dict())), dict(flatten(new_recipe.to_dict()))
    return {
        key: (_format_value(old, key), _format_value(new, key))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    }


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every setting; elements of a list of mappings are named by their `name` or index."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for index, inner in enumerate(value):
            name = inner.get("name", index)
            yield from flatten(inner, f"{prefix}.{name}")
    else:
        yield prefix, list(value) if isinstance(value, tuple) else value


def _format_value(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
