"""User settings located in a resolved recipe: by dotted name (overrides) or from the mapping of a recipe file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meristem.config.recipe import Recipe
from meristem.config.recipe_parts import TrainingSource
from meristem.config.sections import SECTIONS, section_class
from meristem.config.settings import Settings
from meristem.config.validation import build_settings


@dataclass(frozen=True, kw_only=True)
class UserSetting:
    """One setting that a user gave, with the section that holds it."""

    section_path: str
    """Dotted path of its section: `objective`, `rewards.grammar`, `policy.kl`."""
    settings: Settings
    field: str

    @property
    def name(self) -> str:
        """Dotted name, as on the command line."""
        return f"{self.section_path}.{self.field}"

    @property
    def is_default(self) -> bool:
        """Whether its value is the default or None."""
        default = type(self.settings).model_fields[self.field].get_default(call_default_factory=True)
        return getattr(self.settings, self.field) in (None, default)


def settings_by_name(recipe: Recipe, name: str, value: Any = None) -> Iterator[UserSetting]:
    """Settings that `section.setting=value` sets: one per level of the name, and all in a value that is a mapping."""
    section, *path = name.split(".")
    node = _recipe_section(recipe, section)
    if section == "objective" and len(path) == 1:
        node = next((part for part in node if path[0] in type(part).model_fields), node)
    section_path = section
    for key in path:
        if isinstance(node, Settings) and key in type(node).model_fields:
            yield UserSetting(section_path=section_path, settings=node, field=key)
        node, section_path = _child_node(node, key), f"{section_path}.{key}"
    yield from _iter_nested(node, section_path, value)


def settings_in_file(recipe: Recipe, mapping: Mapping[str, Any]) -> Iterator[UserSetting]:
    """Every setting in the mapping of a recipe file, as resolved in `recipe`."""
    for section, value in mapping.items():
        node = _recipe_section(recipe, section)
        if node is None and section in SECTIONS and isinstance(value, Mapping):  # of another kind of run
            node = build_settings(section_class(section), value, section)
        yield from _iter_nested(node, "from" if section == "start" else section, value)


def _recipe_section(recipe: Recipe, section: str) -> Any:
    return getattr(recipe, "start" if section == "from" else section, None)


def _child_node(node: Any, key: str) -> Any:
    if isinstance(node, tuple):
        matches = [child for child in node if getattr(child, "name", None) == key]
        index = int(key) if key.isdigit() else len(node)
        return matches[0] if matches else node[index] if index < len(node) else None
    return getattr(node, key, None) if isinstance(node, Settings | TrainingSource) else None


def _iter_nested(node: Any, section_path: str, value: Any) -> Iterator[UserSetting]:
    """Settings inside a value that is a mapping or a list of mappings."""
    if isinstance(node, tuple) and isinstance(value, list | Mapping):
        entries = value if isinstance(value, list) else [value]
        for number, (child, child_value) in enumerate(zip(node, entries, strict=False)):
            child_name = getattr(child, "name", number)
            yield from _iter_nested(
                child,
                section_path if section_path == "objective" and len(node) == 1 else f"{section_path}.{child_name}",
                child_value,
            )
        return
    for key, child_value in value.items() if isinstance(value, Mapping) else ():
        if isinstance(node, Settings) and key in type(node).model_fields:
            yield UserSetting(section_path=section_path, settings=node, field=key)
        yield from _iter_nested(_child_node(node, str(key)), f"{section_path}.{key}", child_value)
