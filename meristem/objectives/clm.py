"""Causal language modelling (CLM): every position predicts the next token."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives import _token_prediction
from meristem.objectives._sequence_target import SpecialTokenRole
from meristem.tokenizers.tokenizer import Tokenizer


class CLMObjectiveSettings(_token_prediction.TokenLossSettings):
    """Settings of causal language modelling."""

    renamed: ClassVar[dict[str, str]] = {
        "begin": "start_tokens",
    }

    name: Literal["clm"] = "clm"
    """The objective's name."""
    start_tokens: tuple[SpecialTokenRole, ...] | None = None
    """Start tokens before a text in generation and scoring; unless set, the end token of a preceding document."""


class CLMObjective(Objective):
    """p(x) = Π p(x_t | x_<t)."""

    Settings = CLMObjectiveSettings
    name = "clm"
    requires = frozenset({"causal"})
    view = ViewSpec("windows", (("frame", False), ("ahead", 1)))
    memory_view = ViewSpec("contiguous", (("ahead", 1),))
    heads = {"clm": Head("vocabulary")}

    def __init__(self, settings: CLMObjectiveSettings, tokenizer: Tokenizer) -> None:
        self.settings = settings
        if settings.start_tokens is not None:
            role_ids = {"start": tokenizer.start, "end": tokenizer.end, "pad": tokenizer.pad}
            self.decoder_start_ids = tuple(
                token for role in settings.start_tokens if (token := role_ids[role]) is not None
            )
        self.loss_weights = _token_prediction.loss_weights(settings, self.name)

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Shift by one: inputs are all tokens but the last, targets all but the first."""
        tokens = row.inputs["tokens"]
        inputs = {key: value[:-1] if len(value) == len(tokens) else value for key, value in row.inputs.items()}
        labels = {"at": np.arange(len(tokens) - 1), "values": tokens[1:]}
        metadata = {key: value[:-1] if key == "special" else value for key, value in row.metadata.items()}
        return Row(inputs=inputs, targets={**row.targets, "clm": labels}, metadata=metadata, sample_id=row.sample_id)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of predictions."""
        return _token_prediction.count_targets(self.settings, self.name, batch)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Hidden states with causal attention, also of backbones that can be bidirectional."""
        return model.backbone(state=state, causal=True, **batch.inputs)  # type: ignore[no-any-return]  # nn.Module.__call__

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the next token."""
        return _token_prediction.token_loss(self.settings, self.name, model, hidden, batch)
