"""Next sentence prediction: does the second text follow the first? (SPEC B4)"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, View
from meristem.blocks.correct import is_correct
from meristem.blocks.precision import wide
from meristem.errors import MeristemError
from meristem.settings import Settings
from meristem.tokenizers.tokenizer import Tokenizer


class NSPSettings(Settings):
    """What next sentence prediction can be told."""

    name: Literal["nsp"] = "nsp"
    """The objective's name."""
    weight: float = Field(1.0, gt=0)
    """This objective's share where losses are summed."""
    negatives: Literal["other", "swap"] = "other"
    """Wrong pairs: a text from another document (BERT), or the two swapped (sentence order, ALBERT)."""
    rate: float = Field(0.5, gt=0, lt=1)
    """Share of wrong pairs."""


class NSP(Objective):
    """p(follows | [CLS] A [SEP] B [SEP]), read at [CLS]."""

    Settings = NSPSettings
    name = "nsp"
    needs = frozenset({"bidirectional"})
    heads = {"nsp": Head("pooled", (("classes", 2),))}

    def __init__(self, settings: NSPSettings, tokenizer: Tokenizer) -> None:
        if tokenizer.start is None or tokenizer.end is None:
            raise MeristemError("objective nsp: this tokenizer has no start and separator tokens ([CLS], [SEP])")
        self.settings = settings
        self.view = View("pairs", (("negatives", settings.negatives), ("rate", settings.rate)))
        self.weights = {"nsp": settings.weight}

    def prepare(self, row: Row, draw: Draws) -> Row:
        """The view made the pair and knows which it is."""
        goal = {"at": np.zeros(1, np.int64), "values": np.array([row.notes["pair"]], np.int64)}
        return Row(inputs=row.inputs, goals={**row.goals, "nsp": goal}, notes=row.notes, sample=row.sample)

    def wanted(self, batch: Batch) -> Tensor | None:
        """Each row's first position."""
        return batch.goals["nsp"]["at"]

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Two-way cross-entropy at the first position."""
        goal = batch.goals["nsp"]
        logits = wide(model.heads["nsp"](hidden.at(goal["at"])))
        right = is_correct(logits, goal["values"]).sum().float()
        number = torch.tensor(float(len(goal["at"])), device=right.device)
        return Outcome(
            sums={"nsp": F.cross_entropy(logits, goal["values"], reduction="sum")},
            metrics={"nsp.accuracy": (right, number)},
            state=hidden.state,
        )
