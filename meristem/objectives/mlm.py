"""Masked language modelling (MLM): token, whole-word and span masking (BERT, RoBERTa, SpanBERT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field
from torch import Tensor

from meristem.config.conditions import SettingConditions, when
from meristem.inputs.batch import Array, Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives import _token_prediction
from meristem.objectives._masking import MaskingSettings, TokenMasker
from meristem.objectives._token_selection import Ints, masking_units
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

MAX_UNITS = 1 << 12
"""Maximum number of units per text with exhaustive=each."""


class MLMObjectiveSettings(MaskingSettings):
    """Settings of masked language modelling."""

    added = frozenset({"num_maskings"})

    renamed: ClassVar[dict[str, str]] = {
        "exhaustive": "exhaustive_masking",
    }

    needs: ClassVar[SettingConditions] = {
        "mask_rate": (when("exhaustive_masking", False, True),),
        "mask_replace_prob": (when("exhaustive_masking", False),),
        "random_replace_prob": (when("exhaustive_masking", False),),
        "span_geometric_p": (when("exhaustive_masking", False),),
        "max_span_length": (when("exhaustive_masking", False),),
        "initial_mask_rate": (when("exhaustive_masking", False),),
        "adaptive_masking": (when("exhaustive_masking", False),),
        "num_maskings": (when("exhaustive_masking", False),),
    }

    name: Literal["mlm"] = "mlm"
    """The objective's name."""
    exhaustive_masking: bool | Literal["each"] = False
    """Mask every token of a text exactly once: in ⌈1/mask_rate⌉ rows (true), or in one row per unit (each)."""
    num_maskings: int | None = Field(None, ge=1)
    """Number of maskings of a text, used in turn: 1 is static masking, BERT had 10; none draws one in every epoch."""


class MLMObjective(Objective):
    """p(selected tokens | corrupted text): selected tokens are masked, replaced by random ones, or unchanged."""

    Settings = MLMObjectiveSettings
    name = "mlm"
    requires = frozenset({"bidirectional"})
    view = ViewSpec("windows", (("frame", True),))
    heads = {"mlm": Head("vocabulary")}

    def __init__(self, settings: MLMObjectiveSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.masker = settings, TokenMasker(settings, tokenizer, self.name)
        self.starts_word = tokenizer.word_start_mask
        self.changes_masks = settings.changes_in_training and not settings.exhaustive_masking
        self.keeps_history = settings.adaptive_masking and not settings.exhaustive_masking
        self.loss_weights = _token_prediction.loss_weights(settings, self.name)
        max_rows = {False: 1, True: int(np.ceil(1 / settings.mask_rate)), "each": MAX_UNITS}
        self.max_rows_per_sample = max_rows[settings.exhaustive_masking]

    def prepare(self, row: Row, draw: RngFactory) -> Row | list[Row]:
        """Select tokens, mask them, and set the originals as targets."""
        if self.settings.num_maskings is not None and isinstance(draw, SampleRng):
            draw = draw.repeating(self.settings.num_maskings)
        rng = draw("mlm")
        tokens = row.inputs["tokens"]
        groups = masking_units(tokens, ~row.metadata["special"], self.starts_word, self.settings.unit != "token")
        if self.settings.exhaustive_masking:
            return self._exhaustive_rows(row, groups, rng)
        positions, replacements = self.masker.mask(tokens, groups, rng)
        masked = self._mask_row(row, positions, replacements)
        masked.metadata = {**row.metadata, **self.masker.candidates(tokens, groups, rng)}
        return masked

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """In training, the batch masked for the present mask rate and the model's accuracy so far."""
        if not self.changes_masks or not model.training:
            return batch
        masked = self.masker.remask(batch, self.name, history)
        return replace(masked, target_counts={**batch.target_counts, **self.count_targets(masked)})

    def update_history(self, history: Any, observations: Sequence[Any]) -> Any:
        """The running accuracy of each token id."""
        return self.masker.update_history(history, observations)

    def _exhaustive_rows(self, row: Row, groups: list[Ints], rng: Generator) -> list[Row]:
        """Rows in which each group is masked exactly once: ⌈1/mask_rate⌉ rows, or one row per group."""
        order = rng.permutation(len(groups))
        num_rows = max(1, len(groups)) if self.settings.exhaustive_masking == "each" else self.max_rows_per_sample
        rows = []
        for row_index in range(num_rows):
            row_groups = [groups[i] for i in order[row_index::num_rows]]
            positions = np.sort(np.concatenate(row_groups)) if row_groups else np.zeros(0, np.int64)
            rows.append(self._mask_row(row, positions, np.full(len(positions), self.masker.mask_id)))
        return rows

    def _mask_row(self, row: Row, positions: Ints, replacements: Array) -> Row:
        tokens = row.inputs["tokens"].copy()
        labels = {"at": positions, "values": tokens[positions]}
        tokens[positions] = replacements
        return Row(
            inputs={**row.inputs, "tokens": tokens},
            targets={**row.targets, "mlm": labels},
            metadata=row.metadata,
            sample_id=row.sample_id,
        )

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of selected tokens."""
        return _token_prediction.count_targets(self.settings, self.name, batch)

    def output_positions(self, batch: Batch) -> Tensor | None:
        """Positions of selected tokens; all positions if hidden states have an L1 penalty."""
        return None if self.settings.l1_hidden_states else batch.targets["mlm"]["at"]

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the selected tokens."""
        return _token_prediction.token_loss(
            self.settings, self.name, model, hidden, batch, observes_accuracy=self.keeps_history
        )
