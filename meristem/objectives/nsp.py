"""Next sentence prediction (NSP, BERT) and sentence order prediction (SOP, ALBERT)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.blocks.heads.accuracy import is_correct
from meristem.blocks.precision import at_least_float32
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives.settings import ObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer


class NSPObjectiveSettings(ObjectiveSettings):
    """Settings of next sentence prediction."""

    renamed: ClassVar[dict[str, str]] = {
        "rate": "negative_rate",
    }

    name: Literal["nsp"] = "nsp"
    """The objective's name."""
    weight: float = Field(1.0, gt=0)
    """Weight of this objective's loss in the sum."""
    negatives: Literal["other", "swap"] = "other"
    """Negative pairs: a text from another document (BERT), or the two swapped (sentence order, ALBERT)."""
    negative_rate: float = Field(0.5, gt=0, lt=1)
    """Share of negative pairs."""

    @property
    def privacy_obstacle(self) -> str | None:
        """Negatives of another document are a part of it in the sample."""
        hint = "negative pairs take a text from another document; negatives=swap (sentence order) has one document"
        return hint if self.takes_other_documents else None

    @property
    def takes_other_documents(self) -> bool:
        """Whether negatives come from another document."""
        return self.negatives == "other"


class NSPObjective(Objective):
    """p(B follows A | [CLS] A [SEP] B [SEP]), classified at [CLS]."""

    Settings = NSPObjectiveSettings
    name = "nsp"
    requires = frozenset({"bidirectional"})
    heads = {"nsp": Head("pooled", (("classes", 2),))}

    def __init__(self, settings: NSPObjectiveSettings, tokenizer: Tokenizer) -> None:
        if tokenizer.start is None or tokenizer.end is None:
            raise MeristemError(
                "objective nsp: this tokenizer has no start and separator tokens ([CLS], [SEP]); "
                "train a tokenizer that has them"
            )
        self.settings = settings
        self.view = ViewSpec("pairs", (("negatives", settings.negatives), ("rate", settings.negative_rate)))
        self.loss_weights = {"nsp": settings.weight}

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Set the pair's label, which the view provides, as the target of the summary position ([CLS])."""
        position, label = row.metadata["summary"], row.metadata["pair"]
        labels = {"at": np.array([position], np.int64), "values": np.array([label], np.int64)}
        return Row(
            inputs=row.inputs, targets={**row.targets, "nsp": labels}, metadata=row.metadata, sample_id=row.sample_id
        )

    def output_positions(self, batch: Batch) -> Tensor | None:
        """The summary position of each row."""
        return batch.targets["nsp"]["at"]

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Two-way cross-entropy at the summary position."""
        labels = batch.targets["nsp"]
        logits = at_least_float32(model.heads["nsp"](hidden.select(labels["at"])))
        num_correct = is_correct(logits, labels["values"]).sum().float()
        num_pairs = torch.full((), float(len(labels["at"])), device=num_correct.device)
        return Outcome(
            loss_sums={"nsp": F.cross_entropy(logits, labels["values"], reduction="sum")},
            metrics={"nsp.accuracy": (num_correct, num_pairs)},
            state=hidden.state,
        )
