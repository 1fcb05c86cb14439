"""Several objectives on one encoding: BERT is MLM + NSP (SPEC B9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from meristem.batch import Batch, Draws, Hidden, Model, Objective, Outcome, Row, State, View
from meristem.errors import RecipeError
from meristem.learning.learner import begin_of, heads_of, opening_of
from meristem.settings import Settings


class Combined(Objective):
    """Rows pass through every part in order, the backbone runs once, and each part keeps its own denominator."""

    Settings = Settings

    def __init__(self, parts: Sequence[Objective], tokenizer: Any = None) -> None:
        self.parts = tuple(parts)
        self.name = "+".join(part.name for part in parts)
        self.needs = frozenset().union(*(part.needs for part in parts))  # type: ignore[misc]  # of this very sum
        self.view = _view(self.parts)
        self.axis = self._one("axis")
        self.rows_per_sample = math.prod(part.rows_per_sample for part in parts)
        self.heads = heads_of({part.name: part for part in parts})
        named = {part.name: part for part in parts}
        self.begin_ids = begin_of(named) or opening_of(named)
        self.source_kinds = frozenset().union(*(part.source_kinds for part in parts))
        self.weights = {term: weight for part in parts for term, weight in part.weights.items()}

    def _one(self, what: str) -> Any:
        values = {getattr(part, what) for part in self.parts}
        if len(values) > 1:
            raise RecipeError(f"objective: {self.name} cannot be summed on one encoding (differing {what}); use mix")
        return values.pop()

    def prepare(self, row: Row, draw: Draws) -> Row | list[Row]:
        """Each part in order; a part that makes several rows hands all of them on."""
        rows = [row]
        for part in self.parts:
            made = [part.prepare(one, draw) for one in rows]
            rows = [one for some in made for one in (some if isinstance(some, list) else [some])]
        return rows

    def count(self, batch: Batch) -> dict[str, int]:
        """The parts' counts side by side."""
        return {term: number for part in self.parts for term, number in part.count(batch).items()}

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """Each part in order."""
        for part in self.parts:
            batch = part.explore(model, batch)
        return batch

    def wanted(self, batch: Batch) -> Tensor | None:
        """What any part reads, in order."""
        each = [part.wanted(batch) for part in self.parts]
        few = [positions for positions in each if positions is not None]
        return torch.cat(few).sort().values if len(few) == len(each) else None

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """The one part with a way of its own encodes for all."""
        own = [part for part in self.parts if type(part).encode is not Objective.encode]
        if len(own) > 1:
            raise RecipeError(f"objective: {' and '.join(p.name for p in own)} both encode in their own way; use mix")
        return own[0].encode(model, batch, state) if own else super().encode(model, batch, state)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The parts' losses side by side."""
        whole = Outcome(sums={}, state=hidden.state)
        for part in self.parts:
            outcome = part.loss(model, hidden, batch)
            whole.sums.update(outcome.sums)
            whole.metrics.update(outcome.metrics)
            whole.scored.update(outcome.scored)
        return whole


def _view(parts: Sequence[Objective]) -> View:
    """The one part that demands another view than windows decides; two differing demands are refused."""
    demands = {part.view for part in parts if part.view.kind != "windows"} or {part.view for part in parts}
    if len(demands) > 1:
        raise RecipeError(f"objective: {' + '.join(p.name for p in parts)} want different views of the text; use mix")
    return demands.pop()
