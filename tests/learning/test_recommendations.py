"""A refusal never recommends what it refuses: every family and objective it names passes the same check."""

from __future__ import annotations

import re
from typing import Any

import pytest

from meristem.config.errors import RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES
from meristem.interfaces.task import TASKS
from meristem.learning.build import check_recipe

SOURCES = {"examples": "builtin:microworld-pairs", "images": "builtin:microworld-pictures"}


def refusal_message(plain: dict[str, Any]) -> str:
    """Why a recipe is refused; one whose batches are too small for its model is checked with the size advised."""
    try:
        check_recipe(resolve_recipe("test", plain))
    except RecipeError as error:
        advised = re.search(r"set train\.batch_tokens=(\d+) or more", str(error))
        return refusal_message({**plain, "train": {"batch_tokens": int(advised[1])}}) if advised else str(error)
    return ""


def named(message: str, after: str) -> list[str]:
    match = re.search(rf"{after}: ([\w, -]+)", message)
    return [name for name in map(str.strip, match.group(1).split(",")) if name != "none"] if match else []


def source_of(objective: str) -> dict[str, str]:
    return {"source": SOURCES.get(OBJECTIVES[objective].view.kind, "builtin:pydocs")}


@pytest.mark.parametrize("family", MODEL_FAMILIES)
def test_objectives(family: str) -> None:
    for objective in OBJECTIVES:
        plain = {"model": {"family": family}, "objective": objective, "corpus": source_of(objective)}
        message = refusal_message(plain)
        if not message:
            continue
        others = named(message, "Families that support it")
        assert others and family not in others
        assert [other for other in others if refusal_message({**plain, "model": {"family": other}})] == []
        supported = named(message, f"objectives {family} supports")
        assert [
            objective_name for objective_name in supported if refusal_message({**plain, "objective": objective_name})
        ] == [], message


@pytest.mark.parametrize("family", MODEL_FAMILIES)
def test_tasks_and_rewards(family: str) -> None:
    plans: list[tuple[dict[str, Any], str]] = [({"task": task}, "Families that support it") for task in TASKS]
    plans.append(({"policy": {}, "rewards": [{"name": "length", "target": 3}]}, "families that do"))
    for plan, after in plans:
        message = refusal_message({**plan, "model": {"family": family}})
        others = named(message, after)
        assert bool(others) == bool(message) and family not in others
        assert [other for other in others if refusal_message({**plan, "model": {"family": other}})] == [], message


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_sources(objective: str) -> None:
    """A corpus that is recommended is one that the objective reads."""
    family = next(
        family for family in MODEL_FAMILIES if OBJECTIVES[objective].requires <= MODEL_FAMILIES[family].capabilities
    )
    message = refusal_message({"model": {"family": family}, "objective": objective})
    if match := re.search(r"corpus\.source=(builtin:[\w-]+)", message):
        assert not refusal_message(
            {"model": {"family": family}, "objective": objective, "corpus": {"source": match.group(1)}}
        )
