"""Loading of a folder's tensors into a model: every parameter must be found, and no unknown tensor may remain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe
from meristem.interfaces.backbone import Model
from meristem.interop.model_type import ModelType
from meristem.interop.weight_map import WeightMatch, match_weights
from meristem.interop.weights_folder import FolderWeights, format_names

LEGACY_NORM_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))


def load_parameters(
    model_type: type[ModelType], model: Model, weights: FolderWeights, recipe: Recipe, names: list[str]
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """These parameters converted from their tensors, and the tensors that the model does not use.

    Missing and mismatched parameters are an error that names them; so are tensors that the model type does not know.
    """
    parameters = dict(model.named_parameters())
    matches = list(match_weights(model_type.weight_rules(model.heads), names, recipe.model))
    problems: list[str] = []
    tensors: dict[str, Tensor] = {}
    for match in matches:
        theirs = [find_spelling(model_type, name, weights) for name in match.theirs]
        if missing := [name for name, spelling in zip(match.theirs, theirs, strict=True) if spelling is None]:
            problems += [f"{name} is missing" for name in missing]
            continue
        problems += convert_tensor(
            match, [weights[name] for name in theirs if name], recipe.model, parameters[match.ours], tensors
        )
    if problems:
        raise MeristemError(
            f"{weights.folder}: the weights do not match its config.json: {format_names(problems, '; ')}"
        )
    return tensors, _unused_tensors(model_type, weights, matches)


def convert_tensor(
    match: WeightMatch, theirs: list[Tensor], settings: Any, parameter: Tensor, tensors: dict[str, Tensor]
) -> list[str]:
    """Convert one parameter into `tensors`; returns the problems found."""
    shapes = " and ".join("×".join(map(str, tensor.shape)) for tensor in theirs)
    expected_shape = "×".join(map(str, parameter.shape))
    try:
        ours = match.transform.to_ours(theirs, settings)
    except (RuntimeError, IndexError):
        return [f"{match.theirs[0]} is {shapes}, which does not convert to {expected_shape}"]
    if ours.shape != parameter.shape:
        return [f"{match.theirs[0]} is {shapes}, which does not convert to {expected_shape}"]
    if not ours.is_floating_point():
        return [f"{match.theirs[0]} has dtype {ours.dtype}, which is not a weight"]
    tensors[match.ours] = ours.to(parameter.dtype)
    return []


def find_spelling(model_type: type[ModelType], name: str, weights: FolderWeights) -> str | None:
    """A tensor's name in this folder: base models are saved without their prefix, old norms have gamma and beta.

    Of tied tensors, the file may have any.
    """
    bare_name = name.removeprefix(model_type.base_prefix)
    tied_names = [
        alias
        for alias, target in model_type.tied_weights.items()
        if target.removeprefix(model_type.base_prefix) == bare_name
    ]
    spellings = (spelling for alias in (name, *tied_names) for spelling in _spellings(model_type, alias))
    return next((spelling for spelling in spellings if spelling in weights), None)


def _spellings(model_type: type[ModelType], name: str) -> Iterator[str]:
    for spelling in dict.fromkeys((name, name.removeprefix(model_type.base_prefix))):
        yield spelling
        for current, legacy in LEGACY_NORM_NAMES:
            if spelling.endswith(current):
                yield spelling.removesuffix(current) + legacy


def _unused_tensors(
    model_type: type[ModelType], weights: FolderWeights, matches: Sequence[WeightMatch]
) -> tuple[str, ...]:
    """Tensors that the model does not use; an error unless the model type knows them."""
    folder = weights.folder
    used_names = {spelling for match in matches for name in match.theirs for spelling in _spellings(model_type, name)}
    ignored, unknown = [], []
    for name in sorted(set(weights) - used_names):
        full_name = name if name.startswith(model_type.base_prefix) else model_type.base_prefix + name
        tied_to = model_type.tied_weights.get(name, model_type.tied_weights.get(full_name))
        if tied_to is not None and (tied_name := find_spelling(model_type, tied_to, weights)) is not None:
            if not torch.equal(weights[name], weights[tied_name]):
                raise MeristemError(f"{folder}: {name} and {tied_name} differ, but in this family they are tied")
        elif _matches(model_type.ignored_patterns, name, full_name):
            ignored.append(name)
        elif _matches(model_type.zero_patterns, name):
            if weights[name].any():
                raise MeristemError(
                    f"{folder}: {name} is not zero, and the {model_type.family} family has no such parameter"
                )
        else:
            unknown.append(name)
    if unknown:
        raise MeristemError(f"{folder}: has weights that do not belong to its config.json: {format_names(unknown)}")
    return tuple(ignored)


def _matches(patterns: Sequence[str], *names: str) -> bool:
    """Whether one of the names matches one of the patterns."""
    return any(re.fullmatch(pattern, name) for pattern in patterns for name in names)
