"""The JSON schema of recipes, for completion and validation in editors."""

from __future__ import annotations

from typing import Any

from meristem.config.recipe_format import FORMAT_KEY, RECIPE_FORMAT
from meristem.config.recipe_parts import HeadSettings
from meristem.config.registry import ComponentKind
from meristem.config.sections import SECTIONS, section_class
from meristem.config.settings import Settings


def recipe_schema() -> dict[str, Any]:
    """The schema of all sections with their settings and help texts."""
    definitions: dict[str, Any] = {}

    def add(cls: type[Settings]) -> dict[str, Any]:
        definition = cls.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(definition.pop("$defs", {}))
        name = f"{cls.__module__.removeprefix('meristem.').split('.')[0]}.{cls.__name__}"
        definitions[name] = definition
        return {"$ref": f"#/$defs/{name}"}

    def add_all(kind: ComponentKind) -> list[dict[str, Any]]:
        return [add(cls) for _, cls in kind.settings_classes()]

    def add_named(kind: ComponentKind) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(kind.names())}, *add_all(kind)]}

    families, objective_part = add_all(ComponentKind.FAMILY), add_named(ComponentKind.OBJECTIVE)
    objective = {"anyOf": [objective_part, {"type": "array", "items": objective_part, "minItems": 1}]}
    rewards = {"type": "array", "items": add_named(ComponentKind.REWARD), "minItems": 1}
    sections: dict[str, Any] = {name: add(section_class(name)) for name in SECTIONS}
    start = sections.pop("start")
    share = {"type": "number", "exclusiveMinimum": 0}
    mix_entry: dict[str, Any] = {
        "type": "object",
        "required": ["objective"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "weight": share,
            "objective": objective,
            "corpus": {"anyOf": [{"type": "string"}, sections["corpus"]]},
        },
    }
    phase = {
        "type": "object",
        "required": ["objective"],
        "additionalProperties": False,
        "properties": {**{key: mix_entry["properties"][key] for key in ("name", "objective")}, "share": share},
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
            "task": add_named(ComponentKind.TASK),
            "policy": add(section_class("policy")),
            "rewards": rewards,
            "judge": rewards,
            "objective": objective,
            "mix": {"type": "array", "items": mix_entry},
            "phases": {"type": "array", "items": phase},
            "heads": {"type": "object", "additionalProperties": add(HeadSettings)},
            "from": {"anyOf": [{"type": "string"}, start]},
        },
        "$defs": definitions,
    }
