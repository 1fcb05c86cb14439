"""Points of the loss curves that `meristem describe --hours` fits: the best recipe of each track, kind and budget."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from meristem.config.errors import RecipeError
from meristem.config.recipe import PretrainRecipe, read_recipe, resolve_recipe
from meristem.describe.loss_curve import POINTS, LossPoint, points_to_json

KINDS = {"mlm": "encoder", "clm": "causal", "denoising": "encoder-decoder"}
"""Objective whose validation loss is recorded → kind of model; other objectives' losses are of another scale."""


def best_points(records: Iterable[Mapping[str, Any]]) -> list[LossPoint]:
    """One point per track, kind and budget: the label with the lowest mean loss over its seeds."""
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        if (kind := _kind(record)) is not None:
            groups.setdefault((record["track"], kind, record["budget"], record["label"]), []).append(record)
    best: dict[tuple[str, str, str], LossPoint] = {}
    for (track, kind, budget, label), group in groups.items():
        point = LossPoint(
            track=track,
            kind=kind,
            label=label,
            flops=statistics.mean(record["used"]["flops"] for record in group),
            loss=statistics.mean(record["metrics"]["loss"] for record in group),
            seeds=len(group),
        )
        key = (track, kind, budget)
        if key not in best or point.loss < best[key].loss:
            best[key] = point
    return sorted(best.values(), key=lambda point: (point.track, point.kind, point.flops))


def _kind(record: Mapping[str, Any]) -> str | None:
    try:
        recipe = resolve_recipe(*read_recipe(record["recipe"]), record["overrides"])
    except RecipeError:  # a recipe file that is not kept, or one of another version
        return None
    assert isinstance(recipe, PretrainRecipe)
    sources = recipe.sources()
    if len(sources) > 1 or len(sources[0].objective) > 1:  # their loss is a sum or a mean of several
        return None
    return KINDS.get(sources[0].objective[0].name)


def write_points(records: Iterable[Mapping[str, Any]]) -> list[LossPoint]:
    """Write the points into the package."""
    points = best_points(records)
    POINTS.write_text(points_to_json(points), encoding="utf-8")
    return points
