"""Where the settings that a person gave stand in a resolved recipe: by dotted name, or as a mapping from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meristem.recipe import Recipe, Source
from meristem.settings import Settings


@dataclass(frozen=True, kw_only=True)
class GivenSetting:
    """One setting of a section, or of settings within it."""

    place: str
    """Where its section stands: `objective`, `rewards.grammar`, `policy.kl`."""
    settings: Settings
    field: str

    @property
    def name(self) -> str:
        """As it is given on the command line."""
        return f"{self.place}.{self.field}"

    @property
    def is_default(self) -> bool:
        """Whether it has the value that it has anyway, or none at all."""
        usual = type(self.settings).model_fields[self.field].get_default(call_default_factory=True)
        return getattr(self.settings, self.field) in (None, usual)


def given_by_name(recipe: Recipe, name: str, value: Any = None) -> Iterator[GivenSetting]:
    """What `section.setting=value` sets: one setting at every level, or all those in a value that is a mapping."""
    section, *path = name.split(".")
    node = _section(recipe, section)
    if section == "objective" and len(path) == 1:
        node = next((part for part in node if path[0] in type(part).model_fields), node)
    place = section
    for step in path:
        if isinstance(node, Settings) and step in type(node).model_fields:
            yield GivenSetting(place=place, settings=node, field=step)
        node, place = _inside(node, step), f"{place}.{step}"
    yield from _within(node, place, value)


def given_in_file(recipe: Recipe, mapping: Mapping[str, Any]) -> Iterator[GivenSetting]:
    """Every setting of a recipe's mapping, shorthands written out, as the recipe resolved it."""
    for section, value in mapping.items():
        yield from _within(_section(recipe, section), "from" if section == "start" else section, value)


def _section(recipe: Recipe, section: str) -> Any:
    return getattr(recipe, "start" if section == "from" else section, None)


def _inside(node: Any, step: str) -> Any:
    if isinstance(node, tuple):
        named = [one for one in node if getattr(one, "name", None) == step]
        at = int(step) if step.isdigit() else len(node)
        return named[0] if named else node[at] if at < len(node) else None
    return getattr(node, step, None) if isinstance(node, Settings | Source) else None


def _within(node: Any, place: str, value: Any) -> Iterator[GivenSetting]:
    """The settings inside a value that is a mapping or a list of them."""
    if isinstance(node, tuple) and isinstance(value, list | Mapping):
        entries = value if isinstance(value, list) else [value]
        for number, (one, inner) in enumerate(zip(node, entries, strict=False)):
            named = getattr(one, "name", number)
            yield from _within(one, place if place == "objective" and len(node) == 1 else f"{place}.{named}", inner)
        return
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        if isinstance(node, Settings) and key in type(node).model_fields:
            yield GivenSetting(place=place, settings=node, field=key)
        yield from _within(_inside(node, str(key)), f"{place}.{key}", inner)
