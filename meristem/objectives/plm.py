"""Permutation language modelling: the last tokens of a random order, predicted from those before them (SPEC B6)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, State, View
from meristem.dependences import Dependences, when
from meristem.objectives import _words
from meristem.tokenizers.tokenizer import Tokenizer

Ints = NDArray[np.int64]


class PLMSettings(_words.WordsSettings):
    """What a permutation objective can be told."""

    needs: ClassVar[Dependences] = {
        "span_longest": (when("unit", "span"),),
    }

    name: Literal["plm"] = "plm"
    """The objective's name."""
    one_in: float = Field(6.0, ge=1)
    """One token in this many is predicted, the last of the order (K in Yang et al. §2.3)."""
    unit: Literal["token", "span"] = "token"
    """What is predicted: tokens anywhere, or spans with the text round them for context."""
    span_longest: int = Field(5, ge=1)
    """Tokens in the longest span; all lengths from 1 are equally frequent."""
    context: Literal["whole", "ordered"] = "whole"
    """Tokens that are not predicted all see each other (XLNet's own code), or only those before them in the order."""


def last_of(order: Ints, one_in: float) -> Ints:
    """The predicted share of an order, at least one token."""
    return order[len(order) - max(1, round(len(order) / one_in)) :] if len(order) else order


def spans(size: int, one_in: float, longest: int, rng: Generator) -> Ints:
    """Places in spans of 1 to `longest`, each somewhere in `one_in` times its own length of text."""
    chosen: list[Ints] = []
    start = 0
    while start < size:
        length = int(rng.integers(1, longest + 1))
        room = round(length * one_in)
        if start + room > size:  # what is left gets its share, rounded up or down by chance
            room = size - start
            length = min(room, int(room / one_in + rng.random()))
        first = start + int(rng.integers(room - length + 1))
        chosen.append(np.arange(first, first + length))
        start += room
    found = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
    return found if len(found) or not size else rng.integers(size, size=1)


class PLM(Objective):
    """Π p(x_{z_t} | x_{z_<t}) over the last tokens of an order z; the text itself is never moved."""

    Settings = PLMSettings
    name = "plm"
    needs = frozenset({"two_stream"})
    axis = "slots"
    view = View("windows", (("frame", True),))
    lanes = View("lanes", (("ahead", 0),))
    heads = {"plm": Head("vocabulary")}

    def __init__(self, settings: PLMSettings, tokenizer: Tokenizer) -> None:
        self.settings = settings
        self.weights = _words.weights(settings, self.name)

    def prepare(self, row: Row, draw: Draws) -> Row:
        """Draw an order, and say which tokens come last in it; special tokens come first and are never predicted."""
        tokens = row.inputs["tokens"]
        order, predicted = self._order(np.flatnonzero(~row.notes["special"]), draw("plm"))
        rank = np.ones(len(tokens), np.int64)  # 0 is what padding has
        if self.settings.context == "ordered":
            rank[order] = 2 + np.arange(len(order))
        else:
            rank[predicted] = 2 + np.arange(len(predicted))
        slots = np.sort(predicted)
        goal = {"at": np.arange(len(slots)), "values": tokens[slots]}
        inputs = {**row.inputs, "order": rank, "slots": slots}
        return Row(inputs=inputs, goals={**row.goals, "plm": goal}, notes=row.notes, sample=row.sample)

    def _order(self, places: Ints, rng: Generator) -> tuple[Ints, Ints]:
        """All places in the order of factorisation, and the predicted ones that end it."""
        s = self.settings
        order = rng.permutation(places)
        if s.unit == "token":
            return order, last_of(order, s.one_in)
        chosen = np.isin(order, places[spans(len(places), s.one_in, s.span_longest, rng)])
        return np.concatenate([order[~chosen], order[chosen]]), order[chosen]

    def count(self, batch: Batch) -> dict[str, int]:
        """Every slot is a prediction."""
        number = len(batch.goals["plm"]["at"]) if "plm" in batch.goals else 0
        return dict.fromkeys(self.weights, number)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Ranks say what is padding, and slots that are only padding are never read."""
        inputs = {key: value for key, value in batch.inputs.items() if not key.endswith("present")}
        return model.backbone(state=state, **inputs)  # type: ignore[no-any-return]  # nn.Module.__call__

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the predicted tokens."""
        return _words.judge(self.settings, self.name, model, hidden, batch)
