"""Earlier names of settings: the one that replaced each, migration of older values, and the names that are hashed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from meristem.config.settings import Settings


def inherited_table(cls: type[Settings], attribute: str) -> dict[str, str]:
    """A table that a settings class and its bases declare (`renamed`, `foreign_names`); the class has precedence."""
    table: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        table |= vars(base).get(attribute, {})
    return table


def nested_class(cls: type[Settings], name: str) -> type[Settings] | None:
    """The class of nested settings; None for other settings."""
    annotations: list[Any] = [cls.model_fields[name].annotation] if name in cls.model_fields else []
    for annotation in annotations:
        if isinstance(annotation, type) and hasattr(annotation, "renamed"):
            return annotation
        annotations += get_args(annotation)
    return None


def migrate_settings(cls: type[Settings], values: Any) -> Any:
    """Values given under earlier names, under the current names, nested settings included."""
    if not isinstance(values, Mapping):
        return values
    renamed = inherited_table(cls, "renamed")
    migrated = {}
    for name, value in values.items():
        current_name = renamed.get(str(name), str(name))
        nested = nested_class(cls, current_name)
        migrated[current_name] = value if nested is None else migrate_settings(nested, value)
    return migrated


def with_hashed_names(settings: Settings, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Dumped settings under the names that are hashed: the first that each setting ever had.

    Cache keys and signatures hash these names, so that a rename changes neither, and nor does a setting that was added
    later and has its default.
    """
    # of several earlier names, the one listed first is the oldest
    first_names = {
        current: old for old, current in reversed(inherited_table(type(settings), "renamed").items()) if old != current
    }
    added = frozenset[str]().union(*(vars(base).get("added", ()) for base in type(settings).__mro__))
    hashed: dict[str, Any] = {}
    for name, value in dumped.items():
        nested: Any = getattr(settings, name)
        if name in added and nested == type(settings).model_fields[name].default:
            continue
        is_nested = hasattr(type(nested), "renamed")
        hashed[first_names.get(name, name)] = with_hashed_names(nested, value) if is_nested else value
    return hashed
