"""Comparison of runs: differing settings and final metrics."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from meristem.checkpoint import folder_layout
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe_diff import flatten
from meristem.serving.studio.run_curves import RunCurves
from meristem.serving.studio.run_list import run_kind
from meristem.serving.studio.run_measures import HIGHER_IS_BETTER, LOWER_IS_BETTER
from meristem.serving.studio.run_status import checkpoint_state, finished_record
from meristem.utils import untrusted_files

COMPARABLE_METRICS = frozenset({"bits_per_byte"})
"""Metrics that are comparable between tokenizers and objectives."""
MAX_VALUE_CHARS = 120


def setting_differences(recipes: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings that differ, with their value in each run (None if the run does not have it)."""
    flat_recipes = [dict(flatten(recipe)) for recipe in recipes.values()]
    names = dict.fromkeys(name for settings in flat_recipes for name in settings)
    return [
        {
            "setting": name,
            "values": [_format_value(settings[name]) if name in settings else None for settings in flat_recipes],
        }
        for name in names
        if any(name not in settings or settings[name] != flat_recipes[0].get(name) for settings in flat_recipes)
    ]


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else untrusted_files.to_json(value, default=str)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"


def final_metrics(
    runs: Mapping[str, RunFolder], recipes: Mapping[str, dict[str, Any]], curves: Mapping[str, RunCurves]
) -> list[dict[str, Any]]:
    """One row per metric: its name, its value in each run, and the indices of the best runs if they are comparable."""
    columns = [_run_metrics(run, curves[name]) for name, run in runs.items()]
    comparable = len({_loss_key(recipe) for recipe in recipes.values()}) == 1
    terms = {name for recipe in recipes.values() for name in re.findall(r"\w+", run_kind(recipe)["learns"])}
    return [
        {
            "name": name,
            "values": (values := [column.get(name) for column in columns]),
            "best": _best_indices(name, values, comparable, terms),
        }
        for name in dict.fromkeys(name for column in columns for name in column)
    ]


def _run_metrics(run: RunFolder, curves: RunCurves) -> dict[str, float]:
    """The final metrics of a finished run, or the last evaluation of an unfinished one; and the budget used."""
    record = finished_record(run) or {}
    metrics: dict[str, float] = {}
    for split in ("validation", "test"):
        if isinstance(split_metrics := record.get(split), dict):
            metrics |= _finite_only({f"{split} {name}": value for name, value in split_metrics.items()})
    if not metrics:
        table = curves.tables["evaluation"]
        last = {name: column[-1] for name, column in table.columns.items() if len(column) == len(table.steps)}
        metrics = _finite_only({f"validation {name}": value for name, value in last.items()})
    return metrics | _finite_only(budget_used(run, record))


def budget_used(run: RunFolder, record: Mapping[str, Any]) -> dict[str, Any]:
    """Steps, tokens, FLOPs and minutes used so far."""
    used = record.get("used")
    if isinstance(used, dict):
        return used
    latest_step = folder_layout.read_pointer(run.checkpoints, "latest")
    state = checkpoint_state(run, latest_step) if latest_step is not None else {}
    seconds = state.get("seconds")
    minutes = {"minutes": seconds / 60} if isinstance(seconds, int | float) else {}
    return {"steps": state.get("step"), "tokens": state.get("tokens"), "flops": state.get("flops"), **minutes}


def flops_per_token(run: RunFolder) -> float | None:
    """Mean training FLOPs per token so far; None if unknown."""
    used = budget_used(run, finished_record(run) or {})
    tokens, flops = used.get("tokens"), used.get("flops")
    if not isinstance(tokens, int | float) or not isinstance(flops, int | float) or tokens <= 0:
        return None
    return flops / tokens


def _finite_only(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: value for name, value in values.items() if isinstance(value, int | float) and math.isfinite(float(value))
    }


def _loss_key(recipe: dict[str, Any]) -> str:
    """A key of everything that a loss depends on: losses are comparable if it is equal."""
    key = {"learns": run_kind(recipe)["learns"], "data": recipe.get("data"), "corpus": recipe.get("corpus"),
            "tokenizer": recipe.get("tokenizer")}  # fmt: skip
    return json.dumps(key, sort_keys=True, default=str)


def _best_indices(name: str, values: list[float | None], comparable: bool, terms: set[str]) -> list[int]:
    """Indices of the best values; empty if they are not comparable or all equal. `terms` are losses too."""
    measure = name.split()[-1].split(".")[-1]
    lower_is_better, known_values = measure in LOWER_IS_BETTER | terms, [value for value in values if value is not None]
    has_direction = lower_is_better or measure in HIGHER_IS_BETTER
    if not has_direction or len(set(known_values)) < 2 or not (comparable or measure in COMPARABLE_METRICS):
        return []
    best = min(known_values) if lower_is_better else max(known_values)
    return [index for index, value in enumerate(values) if value == best]
