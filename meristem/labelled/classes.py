"""Labels that a data set stores as numbers and describes by name, as `datasets` writes that down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def naming(features: dict[str, Any]) -> Callable[[Row], Row]:
    """A function that gives a row its names; numbers without one (-1 where a label is kept secret) become None."""
    names = {column: found for column, feature in features.items() if (found := _names(feature))}

    def name(row: Row) -> Row:
        return {**row, **{column: _named(row.get(column), known) for column, known in names.items()}}

    return name if names else lambda row: row


def _names(feature: Any) -> list[str]:
    """The names of a column of labels, or of lists of labels."""
    if isinstance(feature, list):
        return _names(feature[0]) if feature else []
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == "ClassLabel":
        return [str(name) for name in feature.get("names") or ()]
    return _names(feature.get("feature"))


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else None
    return value
