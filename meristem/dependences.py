"""Settings whose effect depends on another setting: how that is declared, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OFF: tuple[Any, ...] = (None, False, 0, "", "none", (), {})
"""Values that switch a setting off."""


@dataclass(frozen=True)
class Condition:
    """Another setting with one of these values, above a number, or simply switched on."""

    setting: str
    """Its name in the same section; a dotted name reaches into settings within the section."""
    values: tuple[Any, ...] = ()
    above: float | None = None

    def current(self, settings: Any) -> Any:
        """What the other setting is."""
        for step in self.setting.split("."):
            settings = getattr(settings, step)
        return settings

    def holds(self, settings: Any) -> bool:
        """Whether the settings of a section fulfil it."""
        value = self.current(settings)
        if self.above is not None:
            return bool(value is not None and value > self.above)
        return value in self.values if self.values else value not in OFF


@dataclass(frozen=True)
class Needs:
    """Conditions of which one must hold, or a setting has no effect."""

    conditions: tuple[Condition, ...]

    def __or__(self, other: Needs) -> Needs:
        return Needs((*self.conditions, *other.conditions))

    def met(self, settings: Any) -> bool:
        """Whether one of them holds."""
        return any(condition.holds(settings) for condition in self.conditions)


def when(setting: str, *values: Any, above: float | None = None) -> Needs:
    """Another setting with one of these values, above a number, or switched on where neither is named."""
    return Needs((Condition(setting, values, above),))


Dependences = Mapping[str, tuple[Needs, ...]]
"""By setting, what must hold as a whole for it to have an effect."""
