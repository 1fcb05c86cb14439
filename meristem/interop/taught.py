"""A run that was taught a task, as published classes hold it: its head under their name, its labels, its frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from meristem.batch import Model
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.published import SAME_HEAD, Published
from meristem.recipe import HeadSettings
from meristem.task import Task

NOWHERE = {
    "commands": "a class with an intent and slots on one encoding",
    "probe": "a class with a head on every layer",
}
"""Tasks that no class of theirs does → what it would have to be."""
CRF = "a CRF over tags (task.crf)"
PROBLEMS = {
    "single": "single_label_classification",
    "multiple": "multi_label_classification",
    "regression": "regression",
}


@dataclass(frozen=True, kw_only=True)
class Taught:
    """A run as it leaves, and what of its task goes along."""

    revived: Revived
    head: str | None = None
    """The head that its class must hold."""
    frame: tuple[str, str] | None = None
    """What stood around one text and around two, where the tokenizer's own file does not say it."""
    length: int | None = None
    """Tokens of a text at the most."""
    notes: tuple[str, ...] = ()


def taught(revived: Revived, *, drop_crf: bool = False) -> Taught:
    """The run with its task's head named as theirs is; what they have no place for is refused by name.

    `drop_crf` leaves a tagger's CRF out, so that its scores of single words can leave.
    """
    task = next((one for one in revived.learner.objectives.values() if isinstance(one, Task)), None)
    if task is None:
        return Taught(revived=_brought(revived))
    told = revived.recipe.task.model_dump()
    notes = _drop_crf(revived.learner.model, told) if drop_crf else ()
    _refuse(task, told)
    name = SAME_HEAD.get(task.name, task.name)
    model = revived.learner.model
    if task.name not in model.heads:  # it writes: its head is an objective's
        return Taught(revived=revived, length=told.get("length"))
    if told["way"] == "encoder_decoder":
        model.begin = tuple(told["begin"][:1]) or None
    head = _renamed(model, task.name, name)
    labels = tuple(told.get("labels") or (("LABEL_0",) if told.get("problem") == "regression" else ()))
    heads = {name: HeadSettings(kind=head.kind, sizes=dict(head.sizes), labels=labels,
                                problem=PROBLEMS.get(told.get("problem") or ""))}  # type: ignore[arg-type]  # fmt: skip  # one of three
    return Taught(
        revived=replace(revived, recipe=replace(revived.recipe, heads={**revived.recipe.heads, **heads})),
        head=name,
        frame=(Published.frame, Published.pair) if told["framed"] else ("A", "A B"),
        length=told["length"],
        notes=(*notes, *_in_range(model, name, told)),
    )


def _brought(revived: Revived) -> Revived:
    """A run whose heads came along with an import, each under the name that its class has."""
    heads = dict(revived.recipe.heads)
    for name in [one for one in heads if one in SAME_HEAD]:
        heads[SAME_HEAD[name]] = heads.pop(name)
        _renamed(revived.learner.model, name, SAME_HEAD[name])
    return replace(revived, recipe=replace(revived.recipe, heads=heads))


def _drop_crf(model: Model, told: dict[str, Any]) -> tuple[str, ...]:
    """A tagger without its CRF, in place: this model only leaves."""
    if not told.get("crf"):
        return ()
    told["crf"] = False
    del model.heads["crf"]
    model.declared = {name: head for name, head in model.declared.items() if name != "crf"}
    return ("CRF: left out (--drop-crf), so each word's tag is its own best one: tags differ from meristem predict's",)


def _refuse(task: Task, told: dict[str, Any]) -> None:
    """What a class of theirs would have to have and has not."""
    both = task.name == "pair" and task.rows_per_sample > 1 and not told.get("siamese")
    hinders = {
        NOWHERE.get(task.name, ""): task.name in NOWHERE,
        CRF: told.get("crf"),
        "two texts read apart (task.siamese)": told.get("siamese"),
        "a pair read in both orders (task.orders)": both,
        "a mix of layers (task.mix)": told.get("mix") or told.get("way") == "both_directions",
        f"a net of the task's own (task.network={told.get('network')})": told.get("network", "none") != "none",
        f"a head on pooled states (task.pooling={told.get('pooling')})": told.get("pooling") is not None,
    }
    if found := [what for what, hinder in hinders.items() if hinder]:
        alone = found == [CRF]
        drop = "; --drop-crf writes the scores of single words without it, whose tags are not the same" if alone else ""
        raise MeristemError(
            f"task {task.name}: transformers has no class for it, since it needs {' and '.join(found)}; "
            f"meristem predict and meristem.load(run).predict use the run as it is{drop}"
        )


def _renamed(model: Model, name: str, new: str) -> Any:
    """The model's head under another name, in place: this model only leaves."""
    if new != name:
        model.heads[new] = model.heads.pop(name)
        model.declared = {new if one == name else one: head for one, head in model.declared.items()}
    return model.declared[new]


def _in_range(model: Model, name: str, told: dict[str, Any]) -> tuple[str, ...]:
    """Numbers of the data's own range: the head's last map says them itself where it can."""
    if told.get("problem") != "regression":
        return ()
    low, high = told["range"]
    last = [part for part in model.heads[name].modules() if isinstance(part, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_((high - low) or 1.0)
        if last.bias is not None:
            last.bias.mul_((high - low) or 1.0).add_(low)
    if last.bias is None and low:
        return (f"numbers: their class has no bias on its scores, so add {low:g} to what it says",)
    return ()
