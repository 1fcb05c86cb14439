"""Runs side by side: the settings in which their recipes differ, and the numbers that each ended with."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from meristem import bounded
from meristem.checkpoint import layout
from meristem.checkpoint.run import Run
from meristem.recipe_differences import flat
from meristem.serving.studio.curves import Curves
from meristem.serving.studio.measures import HIGHER, LOWER
from meristem.serving.studio.runs import kind_of
from meristem.serving.studio.standing import finished_of, state_of

ANYWHERE = frozenset({"bits_per_byte"})
"""Means the same whatever the objective's tokens are."""
LONGEST = 120


def differences(recipes: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Only what differs: a setting, and its value in each run (None where it has no such setting)."""
    each = [dict(flat(recipe)) for recipe in recipes.values()]
    names = dict.fromkeys(name for one in each for name in one)
    return [
        {"setting": name, "values": [_told(one[name]) if name in one else None for one in each]}
        for name in names
        if any(name not in one or one[name] != each[0].get(name) for one in each)
    ]


def _told(value: Any) -> str:
    text = value if isinstance(value, str) else bounded.to_json(value, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def finals(
    runs: Mapping[str, Run], recipes: Mapping[str, dict[str, Any]], curves: Mapping[str, Curves]
) -> list[dict[str, Any]]:
    """A row for each number: its name, its value in each run, and which run is the best where that can be said."""
    columns = [_numbers(run, curves[name]) for name, run in runs.items()]
    alike = len({_meaning(recipe) for recipe in recipes.values()}) == 1
    terms = {name for recipe in recipes.values() for name in re.findall(r"\w+", kind_of(recipe)["learns"])}
    return [
        {
            "name": name,
            "values": (values := [one.get(name) for one in columns]),
            "best": _best(name, values, alike, terms),
        }
        for name in dict.fromkeys(name for one in columns for name in one)
    ]


def _numbers(run: Run, curves: Curves) -> dict[str, float]:
    """What a finished run said of itself, or the last evaluation of one that is not; and what it has spent."""
    facts = finished_of(run) or {}
    found: dict[str, float] = {}
    for split in ("validation", "test"):
        told = facts.get(split)
        found |= _finite({f"{split} {name}": value for name, value in told.items()} if isinstance(told, dict) else {})
    if not found:
        table = curves.tables["evaluation"]
        last = {name: column[-1] for name, column in table.columns.items() if len(column) == len(table.steps)}
        found = _finite({f"validation {name}": value for name, value in last.items()})
    return found | _finite(spent(run, facts))


def spent(run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Steps, tokens, FLOPs and minutes."""
    told = facts.get("used")
    if isinstance(told, dict):
        return told
    saved = layout.pointed(run.checkpoints, "latest")
    state = state_of(run, saved) if saved is not None else {}
    seconds = state.get("seconds")
    minutes = {"minutes": seconds / 60} if isinstance(seconds, int | float) else {}
    return {"steps": state.get("step"), "tokens": state.get("tokens"), "flops": state.get("flops"), **minutes}


def flops_a_token(run: Run) -> float | None:
    """What one token costs, by what the run has spent."""
    told = spent(run, finished_of(run) or {})
    tokens, flops = told.get("tokens"), told.get("flops")
    if not isinstance(tokens, int | float) or not isinstance(flops, int | float) or tokens <= 0:
        return None
    return flops / tokens


def _finite(found: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: value for name, value in found.items() if isinstance(value, int | float) and math.isfinite(float(value))
    }


def _meaning(recipe: dict[str, Any]) -> str:
    """What a loss depends on: two runs whose losses may be compared have the same."""
    told = {"learns": kind_of(recipe)["learns"], "data": recipe.get("data"), "corpus": recipe.get("corpus"),
            "tokenizer": recipe.get("tokenizer")}  # fmt: skip
    return json.dumps(told, sort_keys=True, default=str)


def _best(name: str, values: list[float | None], alike: bool, terms: set[str]) -> list[int]:
    """Which of them are the best; none where it cannot be said, or where all are the same. `terms` are losses too."""
    measure = name.split()[-1].split(".")[-1]
    lower, there = measure in LOWER | terms, [value for value in values if value is not None]
    if not (lower or measure in HIGHER) or len(set(there)) < 2 or not (alike or measure in ANYWHERE):
        return []
    best = min(there) if lower else max(there)
    return [at for at, value in enumerate(values) if value == best]
