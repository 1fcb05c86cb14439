"""A folder of published weights becomes a run like any other."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
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
from meristem.interop.published import LEARNT, SAME_HEAD, TASK_KEY, Published, implied, published
from meristem.interop.weight_matching import left_over, read_parameters, spelled
from meristem.learning.assemble import learner_of
from meristem.recipe import Recipe, resolve
from meristem.settings import WIDEST, names
from meristem.shell_commands import shell_path
from meristem.tokenizers.tokenizer import Tokenizer


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
    notices: tuple[str, ...] = ()
    """What a person should look at before using it."""

    def summary(self) -> str:
        """A few lines for people."""
        goals = " + ".join(part.name for part in self.recipe.objective)
        lines = [
            f"{self.architecture}: {self.recipe.model.family}, {self.parameters / 1e6:.1f} M parameters, in {self.run}",
            f"goes on with {goals}: meristem pretrain {shell_path(self.run)} YOUR-TEXT",
        ]
        known = [name for name in self.recipe.heads if name in names("tasks")]
        lines += [f"answers at once ({name}): meristem predict {shell_path(self.run)}" for name in known]
        if self.fresh:
            lines.append(f"new, since the folder held none: {', '.join(sorted({n.split('.')[1] for n in self.fresh}))}")
        if self.left:
            lines.append(f"left, since nothing here reads it: {some(list(self.left))}")
        lines += self.notices
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
        held = tuple(_task_head(name, config) for name in held)
        recipe = _recipe(table, table.known(config, weights), held, tokenizer, folder, out.name)
        model = _model(recipe, tokenizer, weights, folder)
        own = _own(model, held)
        made = read_parameters(table, model, weights, recipe, folder, own)
        left = left_over(table, model, weights, recipe, folder, own)
        for name, tensors in _companions(table, model, recipe, folder, made).items():
            held, own, made = (*held, name), [*own, *tensors], {**made, **tensors}
        fresh = _fresh(model, own, recipe)
        new = [name for name in model.heads if name not in held]
        run = write_run(out, recipe, tokenizer, whole_state(model, {**made, **fresh}), {"new": new})
    return Imported(
        run=run.path,
        recipe=recipe,
        parameters=sum(p.numel() for p in model.parameters()),
        architecture=architecture, fresh=tuple(fresh), left=left, notices=_small_tokenizer(recipe, tokenizer),
    )  # fmt: skip


def _small_tokenizer(recipe: Recipe, tokenizer: Tokenizer) -> tuple[str, ...]:
    """A warning where most rows of the weights have no token: then the tokenizer is another model's, or cut off."""
    rows = recipe.tokenizer.room or tokenizer.size
    if tokenizer.size * 2 >= rows:
        return ()
    return (
        f"WARNING: the tokenizer has {tokenizer.size:,} tokens, and the weights have rows for {rows:,}: it is hardly "
        "the one they were trained with, and most text will be unknown to it",
    )


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
        return all(spelled(table, one, weights) or spelled(table, f"{one}.weight", weights) for one in modules)

    own = table.architectures[named]
    wider = {
        name: heads
        for name, heads in table.architectures.items()
        if own and set(own) < set(heads) and all(there(head) for head in heads if head not in own)
    }
    architecture = max(wider, key=lambda name: len(wider[name]), default=named)
    heads = table.architectures[architecture]
    return architecture, tuple(name for name in heads if name not in table.optional or there(name))


def _task_head(name: str, config: Mapping[str, Any]) -> str:
    """The head under its task's name, where config.json says that its class was exported for another one."""
    task = config.get(TASK_KEY)
    return str(task) if isinstance(task, str) and SAME_HEAD.get(task) == name else name


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
        | ({"labels": labels, "problem": config.get("problem_type")} if known.classes == 0 else {})
        for name in held
        if not any(name in table.objectives[goal] for goal in goals)
        if (known := table.carried(name)) is not None
        for head in [known.head(len(labels))]
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


def _companions(
    table: type[Published], model: Model, recipe: Recipe, folder: Path, made: Mapping[str, Tensor]
) -> dict[str, dict[str, Tensor]]:
    """Heads that lie in subfolders as models of their own → their tensors; what they share must be the same there."""
    out: dict[str, dict[str, Tensor]] = {}
    for head, architecture in table.companions.items():
        place, part = folder / head, table.alone[architecture]
        if head not in model.heads or not (place / "config.json").is_file():
            continue
        if place.is_symlink():
            raise MeristemError(f"{place}: is a link, and is not followed; put the folder itself there")
        config = config_of(place)
        here, there = implied(part.shape(recipe.model, model)), implied(part.settings(config, str(place)))
        if unlike := [key for key in there if key not in LEARNT and here[key] != there[key]]:
            raise MeristemError(f"{place}: is no {head} of this model, since these differ: {', '.join(unlike)}")
        names = [name for name, _ in model.named_parameters()]
        own = [name for name in names if name.startswith(f"heads.{head}.")]
        shared = [name for name in names if name.startswith("backbone.") and not name.startswith(part.apart)]
        with Weights(place) as weights:
            found = read_parameters(part, model, weights, recipe, place, [*own, *shared])
            left_over(part, model, weights, recipe, place, [*own, *shared])
        if unlike := [name for name in shared if not torch.equal(found[name], made[name])]:
            raise MeristemError(f"{place}: has embeddings of its own, and here they are shared: {some(unlike)}")
        out[head] = {name: found[name] for name in own}
    return out


def whole_state(model: Model, made: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a checkpoint holds: every name, tied ones with the same tensor."""
    owner = {id(value): name for name, value in model.named_parameters()}
    return {name: made[owner[id(value)]] for name, value in model.state_dict(keep_vars=True).items()}


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
