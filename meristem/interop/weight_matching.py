"""Which tensor of a folder becomes which parameter of a model: every parameter finds its own, and none is left over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.interop.folder import Weights, some
from meristem.interop.lines import Place, places
from meristem.interop.published import Published
from meristem.recipe import Recipe

OLD = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))


def read_parameters(
    table: type[Published], model: Model, weights: Weights, recipe: Recipe, folder: Path, own: list[str]
) -> dict[str, Tensor]:
    """Every tensor of ours, made of theirs; whatever is missing or of another shape is named."""
    wanted = dict(model.named_parameters())
    problems: list[str] = []
    made: dict[str, Tensor] = {}
    for place in places(table.lines(model.heads), own, recipe.model):
        theirs = [spelled(table, name, weights) for name in place.theirs]
        if missing := [name for name, there in zip(place.theirs, theirs, strict=True) if there is None]:
            problems += [f"{name} is missing" for name in missing]
            continue
        problems += take(place, [weights[name] for name in theirs if name], recipe.model, wanted[place.ours], made)
    if problems:
        raise MeristemError(f"{folder}: the weights are not those of its config.json: {some(problems, '; ')}")
    return made


def take(place: Place, theirs: list[Tensor], settings: Any, like: Tensor, made: dict[str, Tensor]) -> list[str]:
    """Make one tensor of ours; what is wrong with theirs comes back."""
    shapes = " and ".join("×".join(map(str, one.shape)) for one in theirs)
    wanted = "×".join(map(str, like.shape))
    try:
        ours = place.way.take(theirs, settings)
    except (RuntimeError, IndexError):
        return [f"{place.theirs[0]} is {shapes}, which does not make {wanted}"]
    if ours.shape != like.shape:
        return [f"{place.theirs[0]} is {shapes}, which does not make {wanted}"]
    if not ours.is_floating_point():
        return [f"{place.theirs[0]} holds {ours.dtype}, no weights"]
    made[place.ours] = ours.to(like.dtype)
    return []


def spelled(table: type[Published], name: str, weights: Weights) -> str | None:
    """A tensor's name in this very folder: bodies saved alone leave their prefix out, old norms have Greek names.

    Of tensors that are one, a file may hold any.
    """
    bare = name.removeprefix(table.base)
    same = (name, *(other for other, first in table.ties.items() if first.removeprefix(table.base) == bare))
    return next((one for other in same for one in _spellings(table, other) if one in weights), None)


def _spellings(table: type[Published], name: str) -> Iterator[str]:
    for one in dict.fromkeys((name, name.removeprefix(table.base))):
        yield one
        for new, old in OLD:
            if one.endswith(new):
                yield one.removesuffix(new) + old


def left_over(
    table: type[Published], model: Model, weights: Weights, recipe: Recipe, folder: Path, own: list[str]
) -> tuple[str, ...]:
    """What nothing of ours reads: refused unless the table knows it."""
    read = {
        spelled
        for place in places(table.lines(model.heads), own, recipe.model)
        for name in place.theirs
        for spelled in _spellings(table, name)
    }
    left, unknown = [], []
    for name in sorted(set(weights) - read):
        full = name if name.startswith(table.base) else table.base + name
        tied = table.ties.get(name, table.ties.get(full))
        if tied is not None and (same := spelled(table, tied, weights)) is not None:
            if not torch.equal(weights[name], weights[same]):
                raise MeristemError(f"{folder}: {name} and {same} differ, and in this family they are one tensor")
        elif any(re.fullmatch(pattern, one) for pattern in table.without for one in (name, full)):
            left.append(name)
        elif any(re.fullmatch(pattern, name) for pattern in table.zeros):
            if weights[name].any():
                raise MeristemError(f"{folder}: {name} is not zero, and the {table.family} family has no place for it")
        else:
            unknown.append(name)
    if unknown:
        raise MeristemError(f"{folder}: holds weights that its config.json does not explain: {some(unknown)}")
    return tuple(left)
