"""Token replacement detection without a generator: some tokens are replaced at random, every token is judged."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field

from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives.settings import ObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer


class ReplacedSettings(ObjectiveSettings):
    """Settings of the objective."""

    name: Literal["replaced"] = "replaced"
    """The objective's name."""
    replace_rate: float = Field(0.2, gt=0, lt=1)
    """Share of tokens that are replaced."""


class ReplacedObjective(Objective):
    """p(replaced | every token)."""

    Settings = ReplacedSettings
    name = "replaced"
    requires = frozenset({"bidirectional"})
    view = ViewSpec("windows", (("frame", True),))
    heads = {"replaced": Head("tags", (("classes", 2),))}
    loss_weights = {"replaced": 1.0}

    def __init__(self, settings: ReplacedSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.vocab_size = settings, tokenizer.vocab_size

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Replace tokens and label the replaced ones."""
        rng, tokens = draw("replaced"), row.inputs["tokens"]
        is_drawn = rng.random(len(tokens)) < self.settings.replace_rate
        replaced = np.where(is_drawn, rng.integers(self.vocab_size, size=len(tokens)), tokens)
        target = {"at": np.arange(len(tokens)), "values": replaced != tokens}
        inputs, targets = {**row.inputs, "tokens": replaced}, {**row.targets, "replaced": target}
        return Row(inputs=inputs, targets=targets, metadata=row.metadata, sample_id=row.sample_id)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The sum of cross-entropies."""
        target = batch.targets["replaced"]
        scores = model.heads["replaced"](hidden.select(target["at"]))
        loss = F.cross_entropy(scores, target["values"].long(), reduction="sum")
        return Outcome(loss_sums={"replaced": loss}, state=hidden.state)
