"""The schema that editors complete and check recipes with."""

from __future__ import annotations

from typing import Any

import pytest

from meristem.config.recipe import (
    builtin_recipes,
    builtin_reward_recipes,
    builtin_task_recipes,
    read_recipe,
    resolve_recipe,
)
from meristem.config.schema import recipe_schema

BERT: dict[str, Any] = {"model": {"family": "bert", "layers": 2}, "objective": ["mlm", "nsp"], "train": {"minutes": 3}}


def fits(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    """As much of JSON schema as ours uses; strings may stand for numbers, as settings read them."""
    if "$ref" in rule:
        return fits(value, root["$defs"][rule["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in rule:
        return any(fits(value, alternative, root) for alternative in rule["anyOf"])
    if "enum" in rule or "const" in rule:
        return value in rule.get("enum", [rule.get("const")])
    match rule.get("type"):
        case "object":
            properties = rule.get("properties", {})
            closed = rule.get("additionalProperties", True) is False
            return (
                isinstance(value, dict)
                and all(key in value for key in rule.get("required", []))
                and not (closed and value.keys() - properties.keys())
                and all(fits(inner, properties[key], root) for key, inner in value.items() if key in properties)
            )
        case "array":
            return (
                isinstance(value, list)
                and len(value) >= rule.get("minItems", 0)
                and all(fits(inner, rule["items"], root) for inner in value if "items" in rule)
            )
        case "number" | "integer":
            try:
                number = float(value)
            except (TypeError, ValueError):
                return False
            return number > rule.get("exclusiveMinimum", -1e300) and number >= rule.get("minimum", -1e300)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
    return True


@pytest.mark.parametrize("name", [*builtin_recipes(), *builtin_task_recipes(), *builtin_reward_recipes()])
def test_the_schema_knows_every_shipped_recipe(name: str) -> None:
    rules = recipe_schema()
    _, mapping = read_recipe(name)
    assert fits(mapping, rules, rules)
    plain = resolve_recipe(
        name, {"model": {"family": "gpt2"}, **mapping}
    ).to_dict()  # rewards take the model of their start
    assert fits(plain, rules, rules)


@pytest.mark.parametrize(
    "wrong",
    [
        {"trian": {}},
        {"train": {"rat": 1}},
        {"model": {"family": "brt"}},
        {"objective": "mml"},
        {"objective": []},
        {"objective": [{"name": "mlm", "mask_rate": "much"}]},
        {"mix": [{"weight": 1}]},
        {"train": {"steps": 0}},
    ],
)
def test_the_schema_refuses_mistakes(wrong: dict[str, Any]) -> None:
    rules = recipe_schema()
    assert fits(BERT, rules, rules)
    assert not fits({**BERT, **wrong}, rules, rules)
