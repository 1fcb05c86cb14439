"""Base class of all settings, and the conditions under which they have an effect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import NoneType
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from meristem.config.conditions import AnyCondition, SettingConditions


class Settings(BaseModel):
    """Frozen pydantic settings; the docstring under each field is its help text."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    exclusive: ClassVar[tuple[str, ...]] = ()
    """Mutually exclusive fields: an override of one removes the others."""
    renamed: ClassVar[dict[str, str]] = {}
    """Earlier name → current name; a class adds to those of its bases. What is hashed keeps the earlier name."""
    foreign_names: ClassVar[dict[str, str]] = {}
    """Name in other libraries → setting here, `setting=value`, or a sentence; a class adds to those of its bases."""
    added: ClassVar[frozenset[str]] = frozenset()
    """Settings that earlier versions did not have: hashed only where they are not the default; bases add to them."""
    needs: ClassVar[SettingConditions] = {}
    """Conditions under which settings have an effect; a class adds to those of its bases."""

    @model_validator(mode="before")
    @classmethod
    def _parse_none(cls, value: Any) -> Any:
        """Parse the string `none` as None, for optional settings that are not strings."""
        if not isinstance(value, dict):
            return value
        none_keys = {key for key, item in value.items() if isinstance(item, str) and item.lower() == "none"}
        return {key: None if key in none_keys and _allows_none(cls, key) else item for key, item in value.items()}


@cache
def _allows_none(cls: type[Settings], name: str) -> bool:
    """Whether a field accepts None, and no string that could be "none"."""
    annotations: list[Any] = [cls.model_fields[name].annotation] if name in cls.model_fields else []
    for annotation in annotations:
        annotations += get_args(annotation)
    return NoneType in annotations and str not in annotations and "none" not in annotations


def conditions_of(cls: type[Settings], name: str) -> tuple[AnyCondition, ...]:
    """The conditions of a setting, declared by its class and the bases."""
    condition_groups = (vars(base).get("needs", {}).get(name, ()) for base in cls.__mro__)
    return tuple(condition for conditions in condition_groups for condition in conditions)


def expand_switch(value: Any) -> Any:
    """The value of an optional section that may be switched on with its defaults (true) or off (false)."""
    return ({} if value else None) if isinstance(value, bool) else value


def iter_integers(value: Any) -> Iterator[int]:
    """All integers in a possibly nested value."""
    if isinstance(value, int):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from iter_integers(item)
