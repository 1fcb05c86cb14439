"""Hybrid of masked and causal language modelling (GPT-BERT, Charpentier & Samuel 2024).

Each row is either causal or bidirectional. A causal row predicts every next token. In a bidirectional row tokens are
masked, and a masked token is predicted at the position before it (masked next-token prediction, MNTP), so that one
head and one shift serve both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives import _token_prediction
from meristem.objectives._masking import MaskingSettings, TokenMasker
from meristem.objectives._token_selection import masking_units
from meristem.tokenizers.tokenizer import Tokenizer

CAUSAL, MASKED = "clm", "mntp"
"""The two loss terms; both use the causal head."""


class HybridObjectiveSettings(MaskingSettings):
    """Settings of GPT-BERT's hybrid of masked and causal language modelling."""

    foreign_names: ClassVar[dict[str, str]] = {
        "hybrid_numerator": "mntp_share",
        "mask_ratio": "mntp_share",
    }

    name: Literal["hybrid"] = "hybrid"
    """The objective's name."""
    mntp_share: float = Field(0.5, gt=0, lt=1)
    """Share of rows that are bidirectional and masked, and of their loss in the sum; the others are causal."""

    @model_validator(mode="after")
    def _check_masks(self) -> Self:
        if self.mask_replace_prob + self.random_replace_prob <= 0:
            raise ValueError(
                "mask_replace_prob: without masked and random tokens a bidirectional row shows its targets"
            )
        return self


class HybridObjective(Objective):
    """p(x_t | x_<t) in causal rows, p(masked x_t | corrupted text), predicted at t − 1, in bidirectional rows."""

    Settings = HybridObjectiveSettings
    name = "hybrid"
    requires = frozenset({"causal", "bidirectional", "mixed_rows"})
    view = ViewSpec("windows", (("frame", False), ("ahead", 1)))
    heads = {CAUSAL: Head("vocabulary")}
    predicts_masked_next = True

    def __init__(self, settings: HybridObjectiveSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.masker = settings, TokenMasker(settings, tokenizer, self.name)
        self.masked_settings = settings.model_copy(
            update={"l1_hidden_states": 0.0}
        )  # counted once, with the causal term
        self.starts_word = tokenizer.word_start_mask
        self.keeps_history = settings.adaptive_masking
        self.loss_weights = {
            **_token_prediction.loss_weights(settings, CAUSAL),
            CAUSAL: settings.weight * (1 - settings.mntp_share),
            MASKED: settings.weight * settings.mntp_share,
        }

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """Draw the mode of the row; shift it by one if it is causal, mask it if it is bidirectional."""
        rng = draw("hybrid")
        is_causal = bool(rng.random() >= self.settings.mntp_share)
        tokens, special = row.inputs["tokens"], row.metadata["special"]
        inputs = {key: value[:-1] if len(value) == len(tokens) else value for key, value in row.inputs.items()}
        inputs["causal"] = np.array([is_causal])
        metadata = {**row.metadata, "special": special[:-1]}
        if is_causal:
            labels = {CAUSAL: {"at": np.arange(len(tokens) - 1), "values": tokens[1:]}}
        else:
            allowed = ~special[:-1]
            allowed[:1] = False  # nothing comes before the first token, so it cannot be predicted
            original = inputs["tokens"]
            groups = masking_units(original, allowed, self.starts_word, self.settings.unit != "token")
            positions, replacements = self.masker.mask(original, groups, rng)
            labels = {MASKED: {"at": positions - 1, "values": original[positions]}}
            inputs["tokens"] = original.copy()
            inputs["tokens"][positions] = replacements
            metadata |= self.masker.candidates(original, groups, rng)
        return Row(inputs=inputs, targets={**row.targets, **labels}, metadata=metadata, sample_id=row.sample_id)

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """In training, bidirectional rows masked for the present mask rate and the model's accuracy so far."""
        if not self.settings.changes_in_training or not model.training:
            return batch
        masked = self.masker.remask(batch, MASKED, history, shift=1)
        return replace(masked, target_counts={**batch.target_counts, **self.count_targets(masked)})

    def update_history(self, history: Any, observations: Sequence[Any]) -> Any:
        """The running accuracy of each masked token id."""
        return self.masker.update_history(history, observations)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of next and of masked tokens."""
        return {
            **_token_prediction.count_targets(self.settings, CAUSAL, batch),
            **_token_prediction.count_targets(self.masked_settings, MASKED, batch),
        }

    def output_positions(self, batch: Batch) -> Tensor | None:
        """All positions of causal rows, and those before masked tokens; all positions with an L1 penalty."""
        if self.settings.l1_hidden_states:
            return None
        return (
            torch.cat([batch.targets[term]["at"] for term in (CAUSAL, MASKED) if term in batch.targets]).sort().values
        )

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the next tokens of causal rows, and of the masked tokens of bidirectional rows."""
        outcome = Outcome(loss_sums={}, state=hidden.state)
        for term, settings in ((CAUSAL, self.settings), (MASKED, self.masked_settings)):
            if term not in batch.targets:
                continue
            term_outcome = _token_prediction.token_loss(
                settings,
                term,
                model,
                hidden,
                batch,
                head_name=CAUSAL,
                observes_accuracy=term == MASKED and self.keeps_history,
            )
            outcome.loss_sums.update(term_outcome.loss_sums)
            outcome.metrics.update(term_outcome.metrics)
            outcome.observations += term_outcome.observations
        return outcome
