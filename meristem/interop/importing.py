"""A folder of published weights becomes a run like any other."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from meristem import randomness
from meristem.batch import Model
from meristem.blocks.shapes import shapes_alone
from meristem.checkpoint import disk
from meristem.checkpoint.run import Run
from meristem.checkpoint.save import save
from meristem.checkpoint.snapshot import Snapshot
from meristem.errors import MeristemError, RecipeError
from meristem.interop import words
from meristem.interop.folder import Weights, config_of, some
from meristem.interop.lines import Place, places
from meristem.interop.published import Published, published
from meristem.learning.assemble import learner_of
from meristem.recipe import Recipe, resolve
from meristem.settings import WIDEST, names
from meristem.tokenizers.tokenizer import Tokenizer

OLD = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))

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
        known = [name for name in self.recipe.heads if name in names("tasks")]
        lines += [f"answers at once ({name}): meristem predict {self.run}" for name in known]
        if self.fresh:
            lines.append(f"new, since the folder held none: {', '.join(sorted({n.split('.')[1] for n in self.fresh}))}")
        if self.left:
            lines.append(f"left, since nothing here reads it: {some(list(self.left))}")
        return "\n".join(lines)


def import_folder(folder: Path, out: Path) -> Imported:
    """Read a folder, check that every tensor has its place, and write a run: whole or not at all."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MeristemError(f"{out} exists already, and an import writes over nothing: choose another --out")
    from meristem.interop import elmo  # which makes its runs with what is below

    if elmo.holds(folder):
        return elmo.import_elmo(folder, out)
    config = config_of(folder)
    table = published(str(config.get("model_type")))
    architecture = _architecture(table, config, folder)
    tokenizer = words.read(folder, table, config)
    with Weights(folder) as weights:
        architecture, held = _held(table, architecture, weights)
        recipe = _recipe(table, table.known(config, weights), held, tokenizer, folder, out.name)
        model = _model(recipe, tokenizer, weights, folder)
        own = _own(model, held)
        made = _tensors(table, model, weights, recipe, folder, own)
        left = _left(table, model, weights, recipe, folder, own)
        fresh = _fresh(model, own, recipe)
        new = [name for name in model.heads if name not in held]
        run = write_run(out, recipe, tokenizer, whole_state(model, {**made, **fresh}), {"new": new})
    return Imported(
        run=run.path,
        recipe=recipe,
        parameters=sum(p.numel() for p in model.parameters()),
        architecture=architecture, fresh=tuple(fresh), left=left,
    )  # fmt: skip


def _architecture(table: type[Published], config: Mapping[str, Any], folder: Path) -> str:
    listed = config.get("architectures") or [next(iter(table.architectures))]
    named = str(listed[0] if isinstance(listed, list) else listed)
    if named not in table.architectures:
        raise MeristemError(
            f"{folder / 'config.json'}: {named} is not one that can be read; of {table.type} these can: "
            f"{', '.join(table.architectures)}"
        )
    return named


def _held(table: type[Published], named: str, weights: Weights) -> tuple[str, tuple[str, ...]]:
    """The class and its heads, the optional ones only where their weights are there.

    Published BERTs call themselves masked models and hold next sentences too: the class that has all of it is meant.
    """

    def there(head: str) -> bool:
        modules = (module for line in table.heads[head].lines for module in line.several)
        return all(_spelled(table, one, weights) or _spelled(table, f"{one}.weight", weights) for one in modules)

    own = table.architectures[named]
    wider = {
        name: heads
        for name, heads in table.architectures.items()
        if own and set(own) < set(heads) and all(there(head) for head in heads if head not in own)
    }
    architecture = max(wider, key=lambda name: len(wider[name]), default=named)
    heads = table.architectures[architecture]
    return architecture, tuple(name for name in heads if name not in table.optional or there(name))


def _recipe(
    table: type[Published],
    config: Mapping[str, Any],
    held: tuple[str, ...],
    tokenizer: Tokenizer,
    folder: Path,
    name: str,
) -> Recipe:
    """What a run of this model would have been told."""
    goals = [name for name, heads in table.objectives.items() if set(heads) <= set(held)]
    labels = words.labels(config)
    carried = {
        name: {"kind": head.kind, "sizes": dict(head.sizes)}
        | ({"labels": labels, "problem": config.get("problem_type")} if table.heads[name].classes == 0 else {})
        for name in held
        if not any(name in table.objectives[goal] for goal in goals)
        for head in [table.heads[name].head(len(labels))]
    }
    rows = config.get("vocab_size", tokenizer.size)
    if type(rows) is not int or rows < 1:
        raise MeristemError(f"{folder / 'config.json'}: vocab_size={rows!r} is no number of tokens")
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
    try:
        return resolve(name, told)
    except RecipeError as error:
        raise MeristemError(f"{folder / 'config.json'}: {error}") from None


def _model(recipe: Recipe, tokenizer: Tokenizer, weights: Weights, folder: Path) -> Model:
    """The model without its weights."""
    for key, value in {**recipe.model.model_dump(), "vocab_size": recipe.tokenizer.room}.items():
        most = len(weights) if key.endswith("layers") else WIDEST  # a layer has a tensor at least
        if isinstance(value, int) and value > most:
            raise MeristemError(f"{folder / 'config.json'}: {key} of {value:,} cannot be: at most {most:,} here")
    with shapes_alone():
        return learner_of(recipe, tokenizer).model


def _own(model: Model, held: tuple[str, ...]) -> list[str]:
    """Tensors of ours that the folder must hold: all but those of heads that are new."""
    new = tuple(f"heads.{name}." for name in model.heads if name not in held)
    return [name for name, _ in model.named_parameters() if not name.startswith(new)]


def _fresh(model: Model, own: list[str], recipe: Recipe) -> dict[str, Tensor]:
    """The weights of heads that are new: drawn for them alone, from the seed of the run."""
    torch.default_generator.manual_seed(randomness.key(recipe.train.seed, "weights") & 0x7FFF_FFFF_FFFF_FFFF)
    wanted = {name for name, _ in model.named_parameters()} - set(own)
    out: dict[str, Tensor] = {}
    for name in dict.fromkeys(one.split(".")[1] for one in sorted(wanted)):
        head = model.declared[name]
        made = model.backbone.makes(head.kind, **dict(head.sizes))
        out |= {full: p.detach() for part, p in made.named_parameters() if (full := f"heads.{name}.{part}") in wanted}
    return out


def _tensors(
    table: type[Published], model: Model, weights: Weights, recipe: Recipe, folder: Path, own: list[str]
) -> dict[str, Tensor]:
    """Every tensor of ours, made of theirs; whatever is missing or of another shape is named."""
    wanted = dict(model.named_parameters())
    problems: list[str] = []
    made: dict[str, Tensor] = {}
    for place in places(table.lines(model.heads), own, recipe.model):
        theirs = [_spelled(table, name, weights) for name in place.theirs]
        if missing := [name for name, there in zip(place.theirs, theirs, strict=True) if there is None]:
            problems += [f"{name} is missing" for name in missing]
            continue
        problems += take(place, [weights[name] for name in theirs if name], recipe.model, wanted[place.ours], made)
    if problems:
        raise MeristemError(f"{folder}: the weights are not those of its config.json: {some(problems, '; ')}")
    return made


def whole_state(model: Model, made: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a checkpoint holds: every name, tied ones with the same tensor."""
    owner = {id(value): name for name, value in model.named_parameters()}
    return {name: made[owner[id(value)]] for name, value in model.state_dict(keep_vars=True).items()}


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


def _spelled(table: type[Published], name: str, weights: Weights) -> str | None:
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


def _left(
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
        if tied is not None and (same := _spelled(table, tied, weights)) is not None:
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


def write_run(out: Path, recipe: Recipe, tokenizer: Tokenizer, found: dict[str, Tensor], state: dict[str, Any]) -> Run:
    """The run, made beside its place and moved there when it is whole."""
    text = yaml.safe_dump(recipe.plain(), sort_keys=False, allow_unicode=True)
    beside = out.with_name(f".{out.name}.unfinished")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)  # of an import that was killed
        run = Run.create(beside, text, None)
        tokenizer.save(run.tokenizer_path)
        save(run.checkpoints, Snapshot(step=0, model=found, optimizer={}, memory={}, state=state, recipe=text,
                                       tokenizer=run.tokenizer_path))  # fmt: skip
        disk.rename(beside, out)
        disk.sync_folder(out.parent)
    except OSError as error:
        raise MeristemError(f"{out} could not be written: {error.strerror} ({error.filename})") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Run.open(out)
