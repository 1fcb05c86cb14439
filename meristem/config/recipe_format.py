"""Formats of the recipe.yaml in a run: 1 and 2 have earlier names of settings, which are migrated, 3 the current ones.

A run writes the number into its recipe.yaml. A recipe that a user writes needs none: it has the current names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem.config.errors import RecipeError
from meristem.config.registry import module_names
from meristem.config.sections import NAMED_SECTIONS, SECTIONS, section_class
from meristem.config.setting_names import migrate_settings
from meristem.config.settings import Settings

RECIPE_FORMAT = 3
"""The format that is written; docs/decisions/0011 describes each of them."""
FORMAT_KEY = "format"
RENAMED_SECTIONS = {"store": "dataset"}
"""Earlier name of a section → current name."""


def migrate_recipe(mapping: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The mapping of a recipe file in the current format, without its format number."""
    sections = {name: value for name, value in mapping.items() if name != FORMAT_KEY}
    version = recipe_version(mapping, path)
    return sections if version == RECIPE_FORMAT else _with_current_names(sections)


def recipe_version(mapping: Mapping[str, Any], path: Path) -> int:
    """The format of a recipe file; one without a number is of format 1 in a run, else of the current one."""
    version = mapping.get(FORMAT_KEY, 1 if _is_in_run(path) else RECIPE_FORMAT)
    if type(version) is not int or version < 1:
        raise RecipeError(f"{path}: format: {version!r} is not a format number; leave it out of a recipe you write")
    if version > RECIPE_FORMAT:
        raise RecipeError(
            f"{path} has format {version}, and this version of meristem reads formats up to {RECIPE_FORMAT}: "
            "update meristem, or use the version that wrote it"
        )
    return version


def _is_in_run(path: Path) -> bool:
    """Whether a file is the recipe of a run, or its copy in a checkpoint."""
    folder = path.parent
    return path.name == "recipe.yaml" and ((folder / "checkpoints").is_dir() or (folder / "manifest.json").is_file())


def _with_current_names(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Formats 1 and 2: settings and sections get their current names."""
    migrated = {RENAMED_SECTIONS.get(name, name): value for name, value in sections.items()}
    return {name: _migrate_section(name, value) for name, value in migrated.items()}


def _migrate_section(section: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_migrate_section(section, item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if section in ("mix", "phases"):
        return {name: _migrate_section(name, item) for name, item in value.items()}
    if (cls := _section_settings(section, value)) is None:
        return value
    migrated: dict[str, Any] = migrate_settings(cls, value)
    if isinstance(overrides := migrated.get("judge_settings"), Mapping):  # overrides of another recipe
        migrated["judge_settings"] = {_current_key(str(key)): item for key, item in overrides.items()}
    return migrated


def _section_settings(section: str, value: Mapping[str, Any]) -> type[Settings] | None:
    """The settings class of a section; None if it has none, or names one that does not exist."""
    section = "start" if section == "from" else section
    if section in SECTIONS or section == "policy":
        return section_class(section)
    kind, key = NAMED_SECTIONS.get(section, (None, ""))
    name = str(value.get(key))
    return kind.settings_class(name) if kind is not None and name in kind else None


def _current_key(key: str) -> str:
    """A dotted override under its current name; that of a model or objective in the first class that has it."""
    section, _, name = key.partition(".")
    section = RENAMED_SECTIONS.get(section, section)
    kind, class_key = NAMED_SECTIONS.get(section, (None, ""))
    candidates = [{class_key: module} for module in module_names(kind.package)] if kind is not None else [{}]
    for candidate in candidates:
        cls = _section_settings(section, candidate)
        migrated = migrate_settings(cls, {name: None}) if cls is not None else {name: None}
        if name not in migrated:
            return f"{section}.{next(iter(migrated))}"
    return f"{section}.{name}" if name else section
