"""Class names of integer labels, from the ClassLabel features that the `datasets` library stores with a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]


def class_name_decoder(features: Mapping[str, Any]) -> Callable[[Row], Row]:
    """A function that replaces class ids in a row by names; ids without one (-1 for hidden test labels) become None."""
    names = {column: class_names for column, feature in features.items() if (class_names := _class_names(feature))}

    def decode_row(row: Row) -> Row:
        return row | {column: _ids_to_names(row.get(column), of_column) for column, of_column in names.items()}

    return decode_row if names else lambda row: row


def _class_names(feature: Any) -> list[str]:
    """The class names of a column of labels, or of lists of labels."""
    if isinstance(feature, list):
        return _class_names(feature[0]) if feature else []
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == "ClassLabel":
        return [str(name) for name in feature.get("names") or ()]
    return _class_names(feature.get("feature"))


def _ids_to_names(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_ids_to_names(item, names) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else None
    return value
