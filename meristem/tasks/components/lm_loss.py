"""The auxiliary language-model loss of causal models: task + λ · LM (Radford et al. 2018)."""

from __future__ import annotations

import numpy as np

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.inputs.batch import Array, Batch
from meristem.inputs.encoded_input import EncodedInput
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task_parts import AuxiliaryLoss

TERM, HEAD = "lm", "clm"


class LanguageModelLoss(AuxiliaryLoss):
    """Cross-entropy of every token but the first, with weight λ; nothing if λ is 0."""

    def __init__(self, weight: float) -> None:
        self.heads = {HEAD: Head("vocabulary")} if weight else {}
        self.loss_weights = {TERM: weight} if weight else {}

    def targets(self, encoded: EncodedInput) -> dict[str, dict[str, Array]]:
        """The targets of a row."""
        if not self.loss_weights:
            return {}
        tokens = encoded.inputs["tokens"]
        return {TERM: {"at": np.arange(len(tokens) - 1), "values": tokens[1:]}}

    def add(self, model: Model, hidden: Hidden, batch: Batch, outcome: Outcome) -> Outcome:
        """The outcome with this loss, if the rows of the batch have its targets."""
        if self.loss_weights and TERM in batch.targets:
            head, target = model.heads[HEAD], batch.targets[TERM]
            assert isinstance(head, VocabularyHead)
            outcome.loss_sums[TERM] = head.compute_loss(hidden.select(target["at"]), target["values"]).total
        return outcome
