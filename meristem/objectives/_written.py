"""Writing a target from what an encoder read: what seq2seq, denoising and captioning share."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from meristem.batch import Array, Batch, Head, Hidden, Model, Objective, Outcome, Row, View
from meristem.errors import MeristemError
from meristem.objectives import _words
from meristem.tokenizers.tokenizer import Tokenizer

Role = Literal["start", "end", "pad"]


class WrittenSettings(_words.WordsSettings):
    """How written targets are judged, and what they begin after."""

    begin: tuple[Role | int, ...] = Field(("start",), min_length=1)
    """Special tokens that every target begins after: start; end, or end and start (BART); pad (T5); or their ids."""


class Written(Objective):
    """p(y | given) = Π p(y_t | y_<t, given); the decoder reads [start] y_1 … y_n−1 and predicts y_1 … y_n."""

    heads = {"seq2seq": Head("vocabulary")}
    begin_ids: tuple[int, ...]

    def __init__(self, settings: WrittenSettings, tokenizer: Tokenizer) -> None:
        if tokenizer.end is None:
            raise MeristemError(
                f"objective {self.name}: this tokenizer has no end token to say where a target ends; train one"
            )
        self.settings: Any = settings
        self.end = tokenizer.end
        self.begin_ids = tuple(self._id(role, tokenizer) for role in settings.begin)
        bare: tuple[Array, Array] = (np.zeros(0, np.int64), np.array([self.end]))
        frame: tuple[Array, Array] = tokenizer.frame or bare
        self.before, self.after = frame
        """What stands around a source, as around any text that a tokenizer frames."""
        spare = len(self.begin_ids) - 1 - self._framing
        if spare > 0:
            self.view = View(self.view.kind, (*self.view.options, ("spare", spare)))
        self.weights = _words.weights(settings, self.name)

    def _id(self, role: Role | int, tokenizer: Tokenizer) -> int:
        """The token of a role; the end stands in for a start that a tokenizer lacks."""
        if isinstance(role, int):
            return role
        found = {"start": tokenizer.start, "end": tokenizer.end, "pad": tokenizer.pad}[role]
        if found is None and role == "pad":
            raise MeristemError(
                f"objective {self.name}: begin={role}, and this tokenizer has no such token; use start or end"
            )
        return self.end if found is None else found

    @property
    def _framing(self) -> int:
        """How much of the tokenizer's frame a target begins after anyway."""
        size = len(self.before)
        return size if size and self.begin_ids[-size:] == tuple(self.before.tolist()) else 0

    def bare(self, target: Array) -> Array:
        """A framed target without the part of its frame that it begins after: that is read once, not predicted."""
        return target[self._framing :]

    def write(self, row: Row, target: Array, **given: Array) -> Row:
        """A row that reads what is given and predicts every token of the target."""
        tokens = np.concatenate([self.begin_ids, target[:-1]]).astype(np.int64)
        first = len(self.begin_ids) - 1
        goal = {"at": np.arange(first, first + len(target)), "values": target.astype(np.int64)}
        return Row(
            inputs={**given, "tokens": tokens},
            goals={**row.goals, self.name: goal},
            notes=row.notes,
            sample=row.sample,
        )

    def count(self, batch: Batch) -> dict[str, int]:
        """Every token of the target is predicted."""
        return _words.count(self.settings, self.name, batch)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the target."""
        return _words.judge(self.settings, self.name, model, hidden, batch, head_name="seq2seq")
