"""Base of encoder-decoder objectives (seq2seq, denoising, captioning): teacher forcing and cross-entropy."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from meristem.config.errors import MeristemError
from meristem.inputs.batch import Array, Batch, Row
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives import _token_prediction
from meristem.tokenizers.tokenizer import Tokenizer

SpecialTokenRole = Literal["start", "end", "pad"]


class SequenceTargetSettings(_token_prediction.TokenLossSettings):
    """Settings of the target's loss and its start tokens."""

    renamed: ClassVar[dict[str, str]] = {
        "begin": "start_tokens",
    }

    start_tokens: tuple[SpecialTokenRole | int, ...] = Field(("start",), min_length=1)
    """Decoder start tokens, before every target: start; end, or end and start (BART); pad (T5); or token ids."""


class SequenceTargetObjective(Objective):
    """p(y | source) = Π p(y_t | y_<t, source); the decoder's inputs are [start] y_1 … y_n−1, its targets y_1 … y_n."""

    heads = {"seq2seq": Head("vocabulary")}
    decoder_start_ids: tuple[int, ...]

    def __init__(self, settings: SequenceTargetSettings, tokenizer: Tokenizer) -> None:
        if tokenizer.end is None:
            raise MeristemError(
                f"objective {self.name}: this tokenizer has no end token to mark the end of a target; "
                "train a tokenizer that has one"
            )
        self.settings = settings
        self.end_id = tokenizer.end
        self.decoder_start_ids = tuple(self._token_id(role, tokenizer) for role in settings.start_tokens)
        self.template = InputTemplate(
            tokenizer, "encoder_decoder", decoder_start_ids=self.decoder_start_ids, closes_cut_texts=False
        )
        spare_tokens = len(self.decoder_start_ids) - 1 - self.template.start_overlap
        if spare_tokens > 0:
            self.view = ViewSpec(self.view.kind, (*self.view.options, ("spare", spare_tokens)))
        self.loss_weights = _token_prediction.loss_weights(settings, self.name)

    def _token_id(self, role: SpecialTokenRole | int, tokenizer: Tokenizer) -> int:
        """Token id of a role; the end token replaces a missing start token."""
        if isinstance(role, int):
            return role
        token_id = {"start": tokenizer.start, "end": tokenizer.end, "pad": tokenizer.pad}[role]
        if token_id is None and role == "pad":
            raise MeristemError(
                f"objective {self.name}: begin={role}, but this tokenizer has no {role} token; use start or end"
            )
        return self.end_id if token_id is None else token_id

    def build_row(self, row: Row, target: Array, **source_inputs: Array) -> Row:
        """A row with the source as encoder input, and every token of the target as a prediction."""
        tokens = np.concatenate([self.decoder_start_ids, target[:-1]]).astype(np.int64)
        first_position = len(self.decoder_start_ids) - 1
        labels = {"at": np.arange(first_position, first_position + len(target)), "values": target.astype(np.int64)}
        return Row(
            inputs={**source_inputs, "tokens": tokens},
            targets={**row.targets, self.name: labels},
            metadata=row.metadata,
            sample_id=row.sample_id,
        )

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of target tokens."""
        return _token_prediction.count_targets(self.settings, self.name, batch)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the target."""
        return _token_prediction.token_loss(self.settings, self.name, model, hidden, batch, head_name="seq2seq")
