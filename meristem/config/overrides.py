"""Overrides from the command line, `train.learning_rate=3e-4`, applied to a recipe; expansion of shorthands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meristem.config.errors import RecipeError, did_you_mean
from meristem.config.recipe_format import RENAMED_SECTIONS
from meristem.config.registry import ComponentKind
from meristem.config.sections import SECTIONS, section_class
from meristem.config.setting_names import inherited_table
from meristem.config.validation import line_for_name, setting_line, unknown_setting
from meristem.utils import untrusted_files

SECTION_NAMES = (
    *("task", "policy", "rewards", "judge", "data", "corpus", "tokenizer"),
    *("dataset", "model", "objective", "mix", "phases", "train", "from", "grid"),
)

RUN_OPTIONS = {
    "output_dir": "the folder of a run is given with --out FOLDER",
    "overwrite_output_dir": "a run is started again with --fresh; the old one is kept",
    "resume_from_checkpoint": "repeat the command of the run: it resumes from its latest checkpoint",
    "num_processes": "processes are given with --processes N",
    "max_new_tokens": "give --max-tokens N to meristem generate; a run has task.max_tokens or policy.max_new_tokens",
    "num_beams": "give --beams N to meristem generate, or task.beams=N for a task that generates text",
    "do_sample": "meristem generate samples unless --temperature 0 is given",
    "num_return_sequences": "give --count N to meristem generate",
}
"""Names of other libraries for what is no setting of a recipe here → what to do."""


def apply_overrides(mapping: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """A copy of the mapping with the overrides (dotted keys) applied and shorthands expanded."""
    config = expand_shorthands(mapping)
    for key, value in parse_overrides(overrides).items():
        _set_override(config, key, value)
    return config


def parse_overrides(overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Overrides as a mapping from dotted key to value, from a mapping or from `key=value` strings."""
    return dict(overrides.items() if isinstance(overrides, Mapping) else (_parse_override(item) for item in overrides))


def expand_shorthands(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with shorthands such as `objective: mlm` and `from: RUN` expanded."""
    config = {key: _deep_copy(value) for key, value in mapping.items()}
    if "from" in config:
        start = config.pop("from")
        config["start"] = {"path": start} if isinstance(start, str) else start
    if isinstance(config.get("task"), str):
        config["task"] = {"name": config["task"]}
    if "objective" in config:
        config["objective"] = _expand_objectives(config["objective"])
    for section in ("mix", "phases"):
        entries = config.get(section)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and "objective" in entry:
                entry["objective"] = _expand_objectives(entry["objective"])
    return config


def _deep_copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _deep_copy(item) for key, item in value.items()}
    return [_deep_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _expand_objectives(value: Any) -> list[Any]:
    parts = value if isinstance(value, list) else [value]
    return [{"name": part} if isinstance(part, str) else part for part in parts]


def _parse_override(item: str) -> tuple[str, Any]:
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise RecipeError(f"{item!r}: settings are given as key=value, for instance train.learning_rate=3e-4")
    try:
        return key, untrusted_files.parse_yaml(text) if text else None
    except ValueError:
        return key, text


def _set_override(config: dict[str, Any], key: str, value: Any) -> None:
    """Set one dotted key."""
    section, *path = key.split(".")
    if section not in SECTION_NAMES:
        raise RecipeError(_unknown_key(section, path, key, value))
    if section == "from":
        section, path = "start", path or ["path"]
    if key == "task" and isinstance(value, str):
        current_task = config.get("task") or {}
        config["task"] = current_task if current_task.get("name") == value else {"name": value}
    elif not path:
        copied = _deep_copy(value)  # a later override of one of its settings must not change the caller's
        config[section] = _expand_objectives(copied) if section == "objective" else copied
    elif section == "objective":
        _set_objective(config, key, path, value)
    else:
        config[section] = {} if config.get(section) is None else config[section]
        _set_nested(config[section], key, path, value, section_class(section).exclusive if section in SECTIONS else ())


def _unknown_key(section: str, path: list[str], key: str, value: Any) -> str:
    """Message for an override of no section: the line to write instead, or the most similar section."""
    if current_section := RENAMED_SECTIONS.get(section):
        cls = section_class(current_section)
        path = [inherited_table(cls, "renamed").get(name, name) for name in path]
        current_key = ".".join([current_section, *path])
        return f"{key} is now {current_key}; write {setting_line(current_section, '.'.join(path), value)}"
    if not path and (advice := RUN_OPTIONS.get(section) or line_for_name(section, value)):
        return f"{key}: unknown setting; {advice}"
    return f"{key}: unknown setting{did_you_mean(section, SECTION_NAMES)}"


def _set_nested(node: Any, key: str, path: list[str], value: Any, exclusive: tuple[str, ...]) -> None:
    *steps, last = path
    for step in steps:
        node = (
            node[_list_index(node, step, key)]
            if isinstance(node, list)
            else _enter_mapping(_require_mapping(node, key), step)
        )
    if isinstance(node, list):
        node[_list_index(node, last, key)] = value
        return
    for other in exclusive if last in exclusive else ():
        _require_mapping(node, key).pop(other, None)
    _require_mapping(node, key)[last] = value


def _enter_mapping(node: dict[str, Any], name: str) -> Any:
    """The nested mapping of a setting, created if the setting is missing or a boolean."""
    if node.get(name) is None or isinstance(node[name], bool):
        node[name] = {}
    return node[name]


def _require_mapping(node: Any, key: str) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise RecipeError(f"{key}: cannot be set, because its parent is {node!r} in the recipe")
    return node


def _list_index(node: list[Any], name: str, key: str) -> int:
    matches = [index for index, item in enumerate(node) if isinstance(item, dict) and item.get("name") == name]
    if matches:
        return matches[0]
    if not name.isdigit() or int(name) >= len(node):
        raise RecipeError(f"{key}: expected a number from 0 to {len(node) - 1} in place of {name!r}")
    return int(name)


def _set_objective(config: dict[str, Any], key: str, path: list[str], value: Any) -> None:
    """Set `objective.mask_rate` in the objective that has it, or `objective.mlm.mask_rate` in the named one."""
    parts = [part for part in config.get("objective") or [] if isinstance(part, dict)]
    if len(path) == 2:
        matches = [part for part in parts if part.get("name") == path[0]]
        target = matches[0] if matches else parts[_list_index(parts, path[0], key)]
        target[path[1]] = value
        return
    if len(path) != 1:
        raise RecipeError(f"{key}: expected objective.SETTING or objective.NAME.SETTING")
    fields = [ComponentKind.OBJECTIVE.settings_class(str(part.get("name"))).model_fields for part in parts]
    owners = [part for part, known_fields in zip(parts, fields, strict=True) if path[0] in known_fields]
    if not owners:
        raise RecipeError(_unknown_objective_setting(parts, path[0], value))
    if len(owners) > 1:
        full_names = " or ".join(f"objective.{part['name']}.{path[0]}" for part in owners)
        raise RecipeError(f"{key}: several objectives have it; use {full_names}")
    owners[0][path[0]] = value


def _unknown_objective_setting(parts: list[dict[str, Any]], name: str, value: Any) -> str:
    """Message for a setting that no objective has: that of the one that has a line to write instead, or the first."""
    classes = [ComponentKind.OBJECTIVE.settings_class(str(part.get("name"))) for part in parts]
    for table in ("renamed", "foreign_names"):
        for cls in classes:
            if name in inherited_table(cls, table):
                return unknown_setting(cls, "objective", name, value)
    known_names = [field for cls in classes for field in cls.model_fields]
    advice = line_for_name(name, value)
    return f"objective.{name}: unknown setting" + (f"; {advice}" if advice else did_you_mean(name, known_names))
