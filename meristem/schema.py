"""A JSON schema of recipes, so that editors complete and check them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meristem.recipe import HeadSettings
from meristem.settings import SECTIONS, Settings, find, names, section_class


def schema() -> dict[str, Any]:
    """Every section, with its settings and their help."""
    definitions: dict[str, Any] = {}

    def add(cls: type[Settings]) -> dict[str, Any]:
        made = cls.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(made.pop("$defs", {}))
        name = f"{cls.__module__.split('.')[1]}.{cls.__name__}"  # a task may be named like an objective
        definitions[name] = made
        return {"$ref": f"#/$defs/{name}"}

    families = [add(find("models", name).Settings) for name in names("models")]
    objectives = [add(find("objectives", name).Settings) for name in names("objectives")]
    part = {"anyOf": [{"enum": list(names("objectives"))}, *objectives]}
    objective = {"anyOf": [part, {"type": "array", "items": part, "minItems": 1}]}
    reward = {"anyOf": [{"enum": list(names("reinforce.rewards"))}, *_each(add, "reinforce.rewards")]}
    rewards = {"type": "array", "items": reward, "minItems": 1}
    sections: dict[str, Any] = {name: add(section_class(name)) for name in SECTIONS}
    start = sections.pop("start")
    entry = {
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
            **sections,
            "model": {"anyOf": families},
            "task": {"anyOf": [{"enum": list(names("tasks"))}, *_each(add, "tasks")]},
            "policy": add(find("reinforce", "policy").Settings),
            "rewards": rewards,
            "judge": rewards,
            "objective": objective,
            "mix": {"type": "array", "items": entry},
            "heads": {"type": "object", "additionalProperties": add(HeadSettings)},
            "from": {"anyOf": [{"type": "string"}, start]},
        },
        "$defs": definitions,
    }


def _each(add: Callable[[type[Settings]], dict[str, Any]], room: str) -> list[dict[str, Any]]:
    """The settings of everything in a room."""
    return [add(find(room, name).Settings) for name in names(room)]
