"""A run becomes a folder that transformers opens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem import bounded
from meristem.checkpoint import disk, tensors
from meristem.checkpoint.revive import Revived, revive
from meristem.errors import MeristemError, did_you_mean
from meristem.interop import words
from meristem.interop.alternatives import alternatives
from meristem.interop.exported_card import exported_card
from meristem.interop.folder import SAFE
from meristem.interop.lines import given, places
from meristem.interop.published import SAME_HEAD, TASK_KEY, Published, of_family
from meristem.interop.taught import Taught, taught
from meristem.interop.whole import whole
from meristem.settings import find

TASKS = frozenset({"classification", "tagging", "span", "choice"})
"""Heads whose classes read several texts at once, which need a token to pad with."""
REWARD_AIDS = ("leash", "value")
"""Heads that a run has only while it learns from rewards."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written."""

    folder: Path
    architecture: str
    parameters: int
    notes: tuple[str, ...] = ()
    """What was left out or added, so that their class could hold it."""

    def summary(self) -> str:
        """A few lines for people."""
        first = f"{self.architecture}, {self.parameters / 1e6:.1f} M parameters, in {self.folder}"
        return "\n".join([first, *self.notes])


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """One model of transformers, ready to be written to a folder."""

    architecture: str
    texts: Mapping[str, str]
    """A file's name → its content: config.json and the tokenizer's files."""
    weights: Mapping[str, Tensor]
    notes: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """How many numbers its weights hold."""
        return sum(one.numel() for one in self.weights.values())


def export_run(run: Path, out: Path, *, architecture: str | None = None, drop_crf: bool = False) -> Exported:
    """Write config.json, weights, tokenizer and a model card, whole or not at all.

    A head that their class has no place for is refused unless `architecture` names the class; `drop_crf` lets a
    tagger leave without its CRF. A head that is a model of its own there goes into a subfolder of its name.
    """
    from meristem.interop import elmo  # which tells of its files with what is here

    revived = revive(run)
    if revived.recipe.model.family == "elmo" and revived.recipe.task is None:
        return elmo.export_elmo(revived, out)
    task = next((name for name in revived.learner.model.heads if name in SAME_HEAD), None)
    known = taught(revived, drop_crf=drop_crf)
    revived = known.revived
    table = table_of(revived, architecture)
    table, heads, chosen = _heads(table, revived, architecture)
    if architecture is None and known.head is not None and known.head not in heads:
        raise MeristemError(f"transformers has no {table.type} with a head for task {revived.recipe.task.name}")
    companions = _companions(table, revived, heads)
    left = _left_out(table, revived, (*heads, *companions), chosen)
    if architecture is None and known.head is None and left:  # a task's own head is what its run is for
        raise MeristemError(f"no {table.type} class holds all heads of this run; {_without(left, chosen)}")
    model = _model_files(table, known, heads, chosen, {TASK_KEY: task} if task else {})
    beside = {name: _model_files(part, known, (name,), cls) for name, (cls, part) in companions.items()}
    notes = [*known.notes, *(why for why in left.values()), *model.notes]
    notes += [f"{name}: {files.architecture} in the subfolder {name}" for name, files in beside.items()]
    card = exported_card(revived, chosen, heads, notes, tuple(beside))
    with whole(out) as folder:
        _write(folder, model, {"README.md": card})
        for name, files in beside.items():
            _write(folder / name, files)
    parameters = model.parameters + sum(files.parameters for files in beside.values())
    return Exported(folder=out, architecture=chosen, parameters=parameters, notes=tuple(notes))


def _model_files(
    table: type[Published],
    known: Taught,
    heads: tuple[str, ...],
    architecture: str,
    more: Mapping[str, str] | None = None,
) -> ModelFiles:
    """Config with `more` keys, tokenizer and weights of the class that holds these heads."""
    revived, model = known.revived, known.revived.learner.model
    shape = table.shape(revived.recipe.model, model)
    away = tuple(f"heads.{name}." for name in model.heads if name not in heads) + table.apart
    names = [name for name, _ in model.named_parameters() if not name.startswith(away)]
    found = given(places(table.lines(heads), names, shape), model.state_dict(), shape)
    config = config_of(table, revived, architecture, heads) | dict(more or {})
    notes = table.finish(config, found, revived)
    texts = {
        "config.json": bounded.to_json(config, indent=2, ascii_only=True) + "\n",
        **_generation(table, revived, config),
        **words.files(
            revived.tokenizer,
            table,
            known.length or revived.recipe.model.length,
            frame=known.frame,
            pad=config["pad_token_id"],
            side=table.padding(revived),
        ),
    }
    return ModelFiles(architecture=architecture, texts=texts, weights=found, notes=tuple(notes))


def _generation(table: type[Published], revived: Revived, config: Mapping[str, Any]) -> dict[str, str]:
    """generation_config.json for types that write, so that their `generate` begins, ends and pads as ours does."""
    found = table.generation(revived.tokenizer)
    if found is None:
        return {}
    spoken = ("bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
    begins = {key: config[key] for key in spoken if key in config}
    return {"generation_config.json": bounded.to_json({**found, **begins}, indent=2, ascii_only=True) + "\n"}


def table_of(revived: Revived, wanted: str | None = None) -> type[Published]:
    """The published type that a run's model is, of several the one with the class wanted; what hinders is named."""
    recipe, problems, fitting = revived.recipe, list[str](), list[type[Published]]()
    kinds = {head.kind for head in revived.learner.model.declared.values()}
    for table in of_family(recipe.model.family):
        differences = [*table.differences(recipe.model, kinds), *_ways(table, revived)]
        if not differences:
            fitting.append(table)
        else:
            problems.append(f"{table.type} has no {', '.join(differences)}")
    if fitting:
        return next((table for table in fitting if wanted in (*table.architectures, *table.alone)), fitting[0])
    if not problems:
        raise MeristemError(f"transformers has no {recipe.model.family}: {alternatives(revived)}")
    raise MeristemError(f"transformers has no model of this shape: {'; '.join(problems)}. {alternatives(revived)}")


def _ways(table: type[Published], revived: Revived) -> list[str]:
    """Objectives that look at a text in a way that theirs cannot."""
    if table.way is None:
        return []
    if revived.recipe.task is not None:
        way = revived.recipe.task.way
        return [f"task.way={way}"] if way not in (None, table.way) else []
    named = {part.name for source in revived.recipe.sources() for part in source.objective}
    return [f"objective={name}" for name in sorted(named) if table.way not in find("objectives", name).needs]


def _heads(
    table: type[Published], revived: Revived, wanted: str | None
) -> tuple[type[Published], tuple[str, ...], str]:
    """The table, which heads go along, and their class: a task's before the pretraining's, and what holds most.

    A head that began with an import and was never trained does not make a class, unless it is asked for.
    """
    fitting = _fitting(table, revived)
    if wanted is not None:
        alone = {name: part for name, part in table.alone.items() if name in _fitting(part, revived)}
        if wanted not in {**fitting, **alone}:
            raise MeristemError(f"{wanted} cannot be made of this run{did_you_mean(wanted, [*fitting, *alone])}")
        own = table if wanted in fitting else alone[wanted]
        return own, _fitting(own, revived)[wanted], wanted
    brought, unlearnt = set(revived.recipe.heads) - table.optional, _untrained(revived)
    learnt = {name: set(heads) - table.optional for name, heads in fitting.items() if not unlearnt & set(heads)}
    chosen = max(learnt, key=lambda name: (len(brought & learnt[name]), len(learnt[name])))
    return table, fitting[chosen], chosen


def _untrained(revived: Revived) -> set[str]:
    """Heads that began with an import that held none, and were never trained."""
    return set(revived.state.get("new", ()))


def _fitting(table: type[Published], revived: Revived) -> dict[str, tuple[str, ...]]:
    """Their classes that the heads of a run make, and those heads."""
    have = set(revived.learner.model.heads)
    return {
        name: tuple(head for head in heads if head in have)
        for name, heads in table.architectures.items()
        if set(heads) - table.optional <= have
    }


def _companions(
    table: type[Published], revived: Revived, heads: Sequence[str]
) -> dict[str, tuple[str, type[Published]]]:
    """Trained heads that are models of their own there → their class and its table."""
    there = set(revived.learner.model.heads) - set(heads) - _untrained(revived)
    return {name: (cls, table.alone[cls]) for name, cls in table.companions.items() if name in there}


def _left_out(table: type[Published], revived: Revived, heads: Sequence[str], architecture: str) -> dict[str, str]:
    """Trained heads of the run that a class does not hold → why, and which class does."""
    aids = REWARD_AIDS if revived.recipe.policy is not None else ()
    left = [name for name in revived.learner.model.heads if name not in {*heads, *aids, *_untrained(revived)}]
    others = _fitting(table, revived) | {
        name: held for part in table.alone.values() for name, held in _fitting(part, revived).items()
    }
    out = {}
    for name in left:
        ways = [other for other, held in others.items() if name in held]
        how = f"; --architecture {ways[0]} writes it" if ways else ""
        out[name] = f"{name}: left out, since {architecture} has no place for it{how}"
    return out


def _without(left: Iterable[str], architecture: str) -> str:
    return f"--architecture {architecture} writes it without {' and '.join(left)}"


def config_of(table: type[Published], revived: Revived, architecture: str, heads: tuple[str, ...]) -> dict[str, Any]:
    """config.json: the shape, the words and the labels."""
    tokenizer, recipe, model = revived.tokenizer, revived.recipe, revived.learner.model
    room = len(model.backbone.embedding().weight)
    out = {
        "architectures": [architecture],
        "tie_word_embeddings": True,
        **table.config(table.shape(recipe.model, model)),
        "vocab_size": room,
        "dtype": "float32",
        "pad_token_id": tokenizer.end if tokenizer.pad is None and TASKS & set(heads) else tokenizer.pad,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
    }
    for head in (recipe.heads[name] for name in heads if name in recipe.heads and recipe.heads[name].labels):
        out["id2label"] = {str(number): label for number, label in enumerate(head.labels)}
        out["label2id"] = {label: number for number, label in enumerate(head.labels)}
        out["problem_type"] = head.problem
    return out


def _write(folder: Path, model: ModelFiles, more: Mapping[str, str] | None = None) -> None:
    """The files of one model, and further ones beside them."""
    folder.mkdir(exist_ok=True)
    for name, text in {**model.texts, **(more or {})}.items():
        disk.store(folder / name, [text.encode()])
    disk.store(folder / SAFE, tensors.encode(model.weights, {"format": "pt"}))
