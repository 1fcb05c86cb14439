"""The one module a distributed wrapper sees: a model, its objectives, and the loss made of their sums."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from meristem.batch import Backbone, Batch, Head, Model, Objective, Outcome, State
from meristem.blocks.precision import wide
from meristem.errors import RecipeError
from meristem.settings import find, names
from meristem.task import Task

CAUSAL_HEAD = "clm"
"""The head of objectives that continue a text; the others write a target from a source."""


class Learner(nn.Module):
    """`learner(name, batch, totals, state)`: loss = Σ weight · sum / total per term."""

    def __init__(self, model: Model, objectives: Mapping[str, Objective]) -> None:
        super().__init__()
        self.model = model
        self.objectives = dict(objectives)
        model.begin, model.opening = begin_of(self.objectives), opening_of(self.objectives)
        model.source_kinds = frozenset().union(*(one.source_kinds for one in self.objectives.values()))

    def forward(self, name: str, batch: Batch, totals: Mapping[str, int], state: State | None = None) -> Outcome:
        """Encode and judge; every term is divided by its total over the whole step, never by its own count."""
        objective = self.objectives[name]
        hidden = objective.encode(self.model, batch, state)
        outcome = objective.loss(self.model, hidden, batch)
        parts = [objective.weights[term] / totals[term] * total for term, total in outcome.sums.items()]
        outcome.loss = torch.stack([wide(part) for part in parts]).sum()
        return outcome

    def explore(self, name: str, batch: Batch, history: Any = None) -> Batch:
        """What an objective finds out with the model before it learns."""
        with torch.no_grad():
            return self.objectives[name].explore(self.model, batch, history)


def heads_of(objectives: Mapping[str, Objective]) -> dict[str, Head]:
    """Every head the objectives declare; one name with two meanings is refused."""
    heads: dict[str, Head] = {}
    for objective in objectives.values():
        for name, head in objective.heads.items():
            if heads.setdefault(name, head) != head:
                raise RecipeError(f"head {name!r} is declared in two ways: {heads[name]} and {head}")
    return heads


def begin_of(objectives: Mapping[str, Objective]) -> tuple[int, ...] | None:
    """The tokens that every target written from a source begins after; one model has one such beginning."""
    return _one_beginning([one for one in objectives.values() if CAUSAL_HEAD not in one.heads])


def opening_of(objectives: Mapping[str, Objective]) -> tuple[int, ...] | None:
    """The tokens that every causal text begins after, where an objective says so."""
    return _one_beginning([one for one in objectives.values() if CAUSAL_HEAD in one.heads])


def _one_beginning(objectives: Sequence[Objective]) -> tuple[int, ...] | None:
    begins = {one.name: one.begin_ids for one in objectives if one.begin_ids is not None}
    if len(set(begins.values())) > 1:
        raise RecipeError(f"objective.begin: {' and '.join(begins)} begin their targets differently; set one for all")
    return next(iter(begins.values()), None)


def agree(objective: Objective, backbone: type[Backbone], family: str) -> None:
    """Refuse what a family cannot carry, before anything starts, naming the families that would do."""
    missing = objective.needs - backbone.can
    if not missing:
        return
    would = [name for name in names("models") if objective.needs <= find("models", name).can]
    reads = (objective.view.kind, "windows")  # what another objective reads of this corpus: the same, or plain text
    carry = [name for name in carried_by(backbone) if find("objectives", name).view.kind in reads]
    raise RecipeError(
        f"objective {objective.name} needs a {_ways(missing)} backbone, and {family} is {_ways(backbone.can)}. "
        f"Families that would do: {', '.join(would) or 'none yet'} (model.family=…); "
        f"objectives {family} can carry: {', '.join(carry) or 'none'} (objective=…)"
    )


def carried_by(backbone: type[Backbone]) -> list[str]:
    """The objectives whose needs a family meets."""
    return [name for name in names("objectives") if find("objectives", name).needs <= backbone.can]


def carries(task: type[Task], backbone: type[Backbone], family: str) -> None:
    """Refuse a task that a family cannot carry, naming the families that can."""
    if _carries(task, backbone):
        return
    would = [name for name in names("models") if _carries(task, find("models", name))]
    raise RecipeError(
        f"task {task.name} needs a backbone that is {' or '.join(sorted(task.ways))}, and {family} is "
        f"{_ways(backbone.can)}. Families that can carry it: {', '.join(would)}"
    )


def _carries(task: type[Task], backbone: type[Backbone]) -> bool:
    """Whether one of the task's ways is the backbone's, and it learns tasks of this kind at all."""
    kind = backbone.text_tasks or "image" in task.needs
    return bool(task.ways & backbone.can) and task.needs <= backbone.can and kind


def task_way(task: type[Task], backbone: type[Backbone], pretrained: Collection[frozenset[str]]) -> str:
    """How a task uses a backbone that can be used in several ways.

    One with an encoder and a decoder reads with the encoder and writes with both; others as they were pretrained,
    `pretrained` being what each objective of that run needed.
    """
    can = task.ways & backbone.can
    if "encoder_decoder" in backbone.can:
        return next(way for way in ("bidirectional", "encoder_decoder", "causal") if way in can)
    if "causal" in can and len(can) > 1 and pretrained:
        can = frozenset({"causal"}) if any("causal" in needs for needs in pretrained) else can - {"causal"}
    return min(can)


def _ways(abilities: frozenset[str]) -> str:
    """Abilities as a person says them: both_directions → both-directions."""
    return " and ".join(sorted(ability.replace("_", "-") for ability in abilities))
