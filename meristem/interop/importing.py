"""A folder of published weights becomes a run like any other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from meristem.batch import Model
from meristem.checkpoint.run import Run
from meristem.checkpoint.save import save
from meristem.checkpoint.snapshot import Snapshot
from meristem.interop import words
from meristem.interop.folder import Weights, config_of
from meristem.interop.lines import Place, places
from meristem.interop.published import Published, published
from meristem.learning.assemble import learner_of
from meristem.recipe import Recipe, resolve
from meristem.settings import MeristemError
from meristem.tokenizers.tokenizer import Tokenizer

SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of a folder."""

    run: Path
    recipe: Recipe
    parameters: int
    architecture: str
    fresh: tuple[str, ...]
    """Heads that no file held, as a new model would have them."""
    left: tuple[str, ...]
    """Tensors that no part of ours reads."""

    def summary(self) -> str:
        """A few lines for people."""
        goals = " + ".join(part.name for part in self.recipe.objective)
        lines = [
            f"{self.architecture}: {self.recipe.model.family}, {self.parameters / 1e6:.1f} M parameters, in {self.run}",
            f"goes on with {goals}: meristem pretrain {self.run} YOUR-TEXT",
        ]
        if self.fresh:
            lines.append(f"new, since the folder held none: {', '.join(sorted({n.split('.')[1] for n in self.fresh}))}")
        if self.left:
            lines.append(f"left, since nothing here reads it: {_some(list(self.left))}")
        return "\n".join(lines)


def import_folder(folder: Path, out: Path) -> Imported:
    """Read a folder, check that every tensor has its place, and write a run."""
    config = config_of(folder)
    table = published(str(config.get("model_type")))
    architecture = _architecture(table, config, folder)
    tokenizer = words.read(folder, table, config)
    recipe = _recipe(table, config, architecture, tokenizer, folder, out.name)
    with Weights(folder) as weights:
        model, fresh = _model(table, recipe, tokenizer, table.architectures[architecture])
        found = _tensors(table, model, weights, recipe, folder, fresh)
        left = _left(table, model, weights, folder, fresh)
        run = _write(out, recipe, tokenizer, found)
    return Imported(
        run=run.path,
        recipe=recipe,
        parameters=sum(p.numel() for p in model.parameters()),
        architecture=architecture,
        fresh=tuple(fresh),
        left=left,
    )


def _architecture(table: type[Published], config: Mapping[str, Any], folder: Path) -> str:
    named = (config.get("architectures") or [next(iter(table.architectures))])[0]
    if named not in table.architectures:
        raise MeristemError(
            f"{folder / 'config.json'}: {named} is not one that can be read; of {table.type} these can: "
            f"{', '.join(table.architectures)}"
        )
    return str(named)


def _recipe(
    table: type[Published], config: Mapping[str, Any], architecture: str, tokenizer: Tokenizer, folder: Path, name: str
) -> Recipe:
    """What a run of this model would have been told."""
    held = table.architectures[architecture]
    goals = [name for name, heads in table.objectives.items() if set(heads) <= set(held)]
    labels = words.labels(config)
    carried = {
        name: {"kind": head.kind, "sizes": dict(head.sizes), "labels": labels if table.heads[name].classes == 0 else []}
        for name in held
        if not any(name in table.objectives[goal] for goal in goals)
        for head in [table.heads[name].head(len(labels))]
    }
    rows = int(config.get("vocab_size") or tokenizer.size)
    if rows < tokenizer.size:
        raise MeristemError(
            f"{folder}: the tokenizer has {tokenizer.size:,} tokens and the weights have room for {rows:,}"
        )
    told = {
        "tokenizer": {
            "kind": words.kind(tokenizer),
            "size": max(tokenizer.size, 512),
            "room": rows if rows > tokenizer.size else None,
        },
        "model": table.settings(config, str(folder / "config.json")).model_dump(mode="json"),
        "objective": [table.objective(goal, config) for goal in goals or list(table.objectives)[:1]],
        "heads": carried,
    }
    return resolve(name, told)


def _model(
    table: type[Published], recipe: Recipe, tokenizer: Tokenizer, held: tuple[str, ...]
) -> tuple[Model, dict[str, Tensor]]:
    """The model without its weights, and the weights of heads that are new."""
    with torch.device("meta"):
        model = learner_of(recipe, tokenizer).model
    new = [name for name in model.heads if name not in held]
    if not new:
        return model, {}
    whole = learner_of(recipe, tokenizer).model  # a new head begins as in any run of this seed
    start = tuple(f"heads.{name}." for name in new)
    own = {name for name, _ in whole.named_parameters()}
    return model, {name: p.detach() for name, p in whole.named_parameters() if name.startswith(start) and name in own}


def _tensors(
    table: type[Published], model: Model, weights: Weights, recipe: Recipe, folder: Path, fresh: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Every tensor of ours, made of theirs; whatever is missing or of another shape is named."""
    wanted = dict(model.named_parameters())
    problems, made = [], dict(fresh)
    for place in places(table.lines(model.heads), [name for name in wanted if name not in fresh]):
        theirs = [_spelled(table, name, weights) for name in place.theirs]
        if missing := [name for name, there in zip(place.theirs, theirs, strict=True) if there is None]:
            problems += [f"{name} is missing" for name in missing]
            continue
        problem = _take(place, [weights[name] for name in theirs if name], recipe.model, wanted[place.ours], made)
        problems += problem
    if problems:
        raise MeristemError(f"{folder}: the weights are not those of its config.json: {_some(problems, '; ')}")
    state = model.state_dict(keep_vars=True)
    owner = {id(value): name for name, value in model.named_parameters()}
    return {name: made[owner[id(value)]] for name, value in state.items()}


def _take(place: Place, theirs: list[Tensor], settings: Any, like: Tensor, made: dict[str, Tensor]) -> list[str]:
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


OLD = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))


def _spelled(table: type[Published], name: str, weights: Weights) -> str | None:
    """A tensor's name in this very folder: bodies saved alone leave their prefix out, old norms have Greek names."""
    return next((one for one in _spellings(table, name) if one in weights), None)


def _spellings(table: type[Published], name: str) -> Iterator[str]:
    for one in dict.fromkeys((name, name.removeprefix(table.base))):
        yield one
        for new, old in OLD:
            if one.endswith(new):
                yield one.removesuffix(new) + old


def _left(
    table: type[Published], model: Model, weights: Weights, folder: Path, fresh: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """What nothing of ours reads: refused unless the table knows it."""
    names = [name for name, _ in model.named_parameters() if name not in fresh]
    read = {
        spelled
        for place in places(table.lines(model.heads), names)
        for name in place.theirs
        for spelled in _spellings(table, name)
    }
    left, unknown = [], []
    for name in sorted(set(weights) - read):
        full = name if name.startswith(table.base) else table.base + name
        tied = table.ties.get(name)
        if tied is not None and (same := _spelled(table, tied, weights)) is not None:
            if not torch.equal(weights[name], weights[same]):
                raise MeristemError(f"{folder}: {name} and {same} differ, and in this family they are one tensor")
        elif any(re.fullmatch(pattern, one) for pattern in table.without for one in (name, full)):
            left.append(name)
        else:
            unknown.append(name)
    if unknown:
        raise MeristemError(f"{folder}: holds weights that its config.json does not explain: {_some(unknown)}")
    return tuple(left)


def _write(out: Path, recipe: Recipe, tokenizer: Tokenizer, found: dict[str, Tensor]) -> Run:
    out.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(recipe.plain(), sort_keys=False, allow_unicode=True)
    run = Run.create(out, text, None)
    tokenizer.save(run.tokenizer_path)
    save(run.checkpoints, Snapshot(step=0, model=found, optimizer={}, memory={}, state={}, recipe=text,
                                   tokenizer=run.tokenizer_path))  # fmt: skip
    return run


def _some(names: list[str], between: str = ", ") -> str:
    rest = len(names) - SHOWN
    return between.join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
