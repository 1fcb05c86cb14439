"""Causal language modelling: every position predicts the next token and sees no later one (SPEC B1)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, State, View
from meristem.objectives import _words
from meristem.objectives._written import Role
from meristem.tokenizers.tokenizer import Tokenizer


class CLMSettings(_words.WordsSettings):
    """What a causal objective can be told."""

    name: Literal["clm"] = "clm"
    """The objective's name."""
    begin: tuple[Role, ...] | None = None
    """Special tokens that a text begins after when it is written or scored; the end of the one before unless set."""


class CLM(Objective):
    """p(x) = Π p(x_t | x_<t)."""

    Settings = CLMSettings
    name = "clm"
    needs = frozenset({"causal"})
    view = View("windows", (("frame", False), ("ahead", 1)))
    lanes = View("lanes", (("ahead", 1),))
    heads = {"clm": Head("vocabulary")}

    def __init__(self, settings: CLMSettings, tokenizer: Tokenizer) -> None:
        self.settings = settings
        if settings.begin is not None:
            found = {"start": tokenizer.start, "end": tokenizer.end, "pad": tokenizer.pad}
            self.begin_ids = tuple(token for role in settings.begin if (token := found[role]) is not None)
        self.weights = _words.weights(settings, self.name)

    def prepare(self, row: Row, draw: Draws) -> Row:
        """The row holds one token more than is read: inputs are all but the last, targets all but the first."""
        tokens = row.inputs["tokens"]
        inputs = {key: value[:-1] if len(value) == len(tokens) else value for key, value in row.inputs.items()}
        goal = {"at": np.arange(len(tokens) - 1), "values": tokens[1:]}
        notes = {key: value[:-1] if key == "special" else value for key, value in row.notes.items()}
        return Row(inputs=inputs, goals={**row.goals, "clm": goal}, notes=notes, sample=row.sample)

    def count(self, batch: Batch) -> dict[str, int]:
        """Every position predicts."""
        return _words.count(self.settings, self.name, batch)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Ask for the causal way, for backbones that know several."""
        return model.backbone(state=state, causal=True, **batch.inputs)  # type: ignore[no-any-return]  # nn.Module.__call__

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the next token."""
        return _words.judge(self.settings, self.name, model, hidden, batch)
