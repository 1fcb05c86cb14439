"""Conditions under which a setting has an effect, in terms of other settings of its section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DISABLED_VALUES: tuple[Any, ...] = (None, False, 0, "", "none", (), {})
"""Values that mean a setting is switched off."""


@dataclass(frozen=True)
class Condition:
    """Another setting has one of these values, is above a number, or is switched on."""

    setting: str
    """Its name in the same section; a dotted name refers to nested settings."""
    values: tuple[Any, ...] = ()
    above: float | None = None

    def current_value(self, settings: Any) -> Any:
        """The value of the other setting."""
        for name in self.setting.split("."):
            settings = getattr(settings, name)
        return settings

    def is_met(self, settings: Any) -> bool:
        """Whether the settings of a section meet the condition."""
        value = self.current_value(settings)
        if self.above is not None:
            return bool(value is not None and value > self.above)
        return value in self.values if self.values else value not in DISABLED_VALUES


@dataclass(frozen=True)
class AnyCondition:
    """Alternatives: at least one of the conditions must be met."""

    conditions: tuple[Condition, ...]

    def __or__(self, other: AnyCondition) -> AnyCondition:
        return AnyCondition((*self.conditions, *other.conditions))

    def is_met(self, settings: Any) -> bool:
        """Whether at least one condition is met."""
        return any(condition.is_met(settings) for condition in self.conditions)


def when(setting: str, *values: Any, above: float | None = None) -> AnyCondition:
    """Condition: another setting has one of `values`, is above `above`, or is switched on if neither is given."""
    return AnyCondition((Condition(setting, values, above),))


SettingConditions = Mapping[str, tuple[AnyCondition, ...]]
"""Setting → conditions that must all be met for it to have an effect."""
