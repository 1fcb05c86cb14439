"""Alternatives for a run that has no transformers class: commands for the error message of an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, Recipe, builtin_recipes, read_recipe, resolve_recipe
from meristem.interop.model_type import iter_export_types

Objectives = Mapping[str, Any]
"""Objective name → its kind, if it has kinds."""


def suggest_alternatives(loaded: LoadedRun) -> str:
    """Alternatives for the end of an error message: an exportable recipe, ONNX, or this library."""
    suggestions = []
    if name := exportable_recipe(loaded.recipe):
        purpose = "" if loaded.recipe.tuned_task is None else ", to fine-tune"
        suggestions.append(f"meristem pretrain {name} trains an architecture it supports{purpose}")
    if _has_graphs(loaded):
        suggestions.append("meristem export --onnx exports this one for onnxruntime")
    else:
        suggestions.append("the run can only be used with this library (meristem.load)")
    return "; ".join(suggestions)


def exportable_recipe(recipe: Recipe) -> str | None:
    """The built-in recipe of the same family and objectives, smallest first, that transformers supports."""
    objectives = _objectives(recipe)
    candidates: list[tuple[int, bool, str]] = []
    for name in builtin_recipes():
        other = resolve_recipe(*read_recipe(name))
        types = iter_export_types(other.model.family)
        if other.model.family != recipe.model.family or all(kind.unsupported_settings(other.model) for kind in types):
            continue
        other_objectives = _objectives(other)
        if objectives.items() <= other_objectives.items():
            candidates.append((len(other_objectives), "mini" not in name, name))
    return min(candidates)[-1] if candidates else None


def _objectives(recipe: Recipe) -> Objectives:
    """Empty for a task run: any recipe of its family can be fine-tuned."""
    if not isinstance(recipe, PretrainRecipe):
        return {}
    return {part.name: getattr(part, "kind", None) for source in recipe.objectives.values() for part in source}


def _has_graphs(loaded: LoadedRun) -> bool:
    from meristem.interop.onnx_export.graph_export import (
        plan_graphs,  # graph_export imports export_folder, which imports this module
    )

    try:
        plan_graphs(loaded)
    except MeristemError:
        return False
    return True
