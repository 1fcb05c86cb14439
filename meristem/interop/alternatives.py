"""What to do with a run that transformers has no class for: commands that work, for the error that refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.published import of_family
from meristem.recipe import Recipe, read, resolve, shipped

Objectives = Mapping[str, Any]
"""An objective's name → which kind of it, for those that have kinds."""


def alternatives(revived: Revived) -> str:
    """What to use instead, as the end of an error: a recipe of an exportable shape, ONNX, or this library."""
    out = []
    if name := exportable_recipe(revived.recipe):
        begin = "" if revived.recipe.task is None else ", to fine-tune"
        out.append(f"meristem pretrain {name} trains the shape it has{begin}")
    if _has_graphs(revived):
        out.append("meristem export --onnx writes this one for onnxruntime")
    else:
        out.append("this library reads the run (meristem.load), and nothing else does")
    return "; ".join(out)


def exportable_recipe(recipe: Recipe) -> str | None:
    """The shipped recipe of the same family and objectives, small before large, whose shape transformers has."""
    wanted = _objectives(recipe)
    best: list[tuple[int, bool, str]] = []
    for name in shipped():
        other = resolve(*read(name))
        if other.model.family != recipe.model.family or not _has_class(other):
            continue
        found = _objectives(other)
        if wanted.items() <= found.items():
            best.append((len(found), "mini" not in name, name))
    return min(best)[-1] if best else None


def _objectives(recipe: Recipe) -> Objectives:
    """Of a task run none: every recipe of its family will do as its beginning."""
    if recipe.task is not None or recipe.policy is not None:
        return {}
    return {part.name: getattr(part, "kind", None) for source in recipe.sources() for part in source.objective}


def _has_class(recipe: Recipe) -> bool:
    return any(not table.differences(recipe.model) for table in of_family(recipe.model.family))


def _has_graphs(revived: Revived) -> bool:
    from meristem.interop.graphs.writing import plan  # which tells of its files with what exporting.py has

    try:
        plan(revived)
    except MeristemError:
        return False
    return True
