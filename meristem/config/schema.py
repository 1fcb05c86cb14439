"""The JSON schema of recipes, for completion and validation in editors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meristem.config.recipe import HeadSettings
from meristem.config.recipe_format import FORMAT_KEY, RECIPE_FORMAT
from meristem.config.settings import SECTIONS, Settings, find_class, module_names, section_class


def recipe_schema() -> dict[str, Any]:
    """The schema of all sections with their settings and help texts."""
    definitions: dict[str, Any] = {}

    def add(cls: type[Settings]) -> dict[str, Any]:
        definition = cls.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(definition.pop("$defs", {}))
        name = f"{cls.__module__.split('.')[1]}.{cls.__name__}"  # a task and an objective may have the same class name
        definitions[name] = definition
        return {"$ref": f"#/$defs/{name}"}

    families = [add(find_class("models", name).Settings) for name in module_names("models")]
    objectives = [add(find_class("objectives", name).Settings) for name in module_names("objectives")]
    objective_part = {"anyOf": [{"enum": list(module_names("objectives"))}, *objectives]}
    objective = {"anyOf": [objective_part, {"type": "array", "items": objective_part, "minItems": 1}]}
    reward = {"anyOf": [{"enum": list(module_names("reinforce.rewards"))}, *_settings_refs(add, "reinforce.rewards")]}
    rewards = {"type": "array", "items": reward, "minItems": 1}
    sections: dict[str, Any] = {name: add(section_class(name)) for name in SECTIONS}
    start = sections.pop("start")
    mix_entry = {
        "type": "object",
        "required": ["objective"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "weight": {"type": "number", "exclusiveMinimum": 0},
            "objective": objective,
            "corpus": {"anyOf": [{"type": "string"}, sections["corpus"]]},
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Meristem recipe",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            FORMAT_KEY: {"type": "integer", "minimum": 1, "maximum": RECIPE_FORMAT},
            **sections,
            "model": {"anyOf": families},
            "task": {"anyOf": [{"enum": list(module_names("tasks"))}, *_settings_refs(add, "tasks")]},
            "policy": add(find_class("reinforce", "policy").Settings),
            "rewards": rewards,
            "judge": rewards,
            "objective": objective,
            "mix": {"type": "array", "items": mix_entry},
            "heads": {"type": "object", "additionalProperties": add(HeadSettings)},
            "from": {"anyOf": [{"type": "string"}, start]},
        },
        "$defs": definitions,
    }


def _settings_refs(add: Callable[[type[Settings]], dict[str, Any]], package: str) -> list[dict[str, Any]]:
    """Schema references of the settings of every module in a package."""
    return [add(find_class(package, name).Settings) for name in module_names(package)]
