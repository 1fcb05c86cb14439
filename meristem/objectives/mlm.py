"""Masked language modelling (MLM): token, whole-word and span masking (BERT, RoBERTa, SpanBERT)."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.config.settings import Settings
from meristem.inputs.batch import Array, Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.objectives import _token_prediction
from meristem.tokenizers.tokenizer import Tokenizer

MAX_UNITS = 1 << 12
"""Maximum number of units per text with exhaustive=each."""
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class TokenSelectionSettings(Settings):
    """Settings of the selection of tokens to mask or replace."""

    renamed: ClassVar[dict[str, str]] = {
        "span_stop": "span_geometric_p",
        "span_longest": "max_span_length",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "mlm_probability": "mask_rate",
        "masking_rate": "mask_rate",
        "mask_prob": "mask_rate",
    }

    needs: ClassVar[SettingConditions] = {
        "span_geometric_p": (when("unit", "span"),),
        "max_span_length": (when("unit", "span"),),
    }

    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of tokens selected (Devlin et al. 2018, §3.1)."""
    unit: Literal["token", "word", "span"] = "token"
    """What is selected as a unit: single tokens, whole words, or spans of whole words (SpanBERT)."""
    span_geometric_p: float = Field(0.2, gt=0, lt=1)
    """Parameter p of the geometric distribution of span lengths."""
    max_span_length: int = Field(10, ge=1)
    """Maximum span length in words."""


class MLMObjectiveSettings(_token_prediction.TokenLossSettings, TokenSelectionSettings):
    """Settings of masked language modelling."""

    renamed: ClassVar[dict[str, str]] = {
        "mask_share": "mask_replace_prob",
        "random_share": "random_replace_prob",
        "exhaustive": "exhaustive_masking",
    }

    needs: ClassVar[SettingConditions] = {
        "mask_rate": (when("exhaustive_masking", False, True),),
        "mask_replace_prob": (when("exhaustive_masking", False),),
        "random_replace_prob": (when("exhaustive_masking", False),),
        "span_geometric_p": (when("exhaustive_masking", False),),
        "max_span_length": (when("exhaustive_masking", False),),
    }

    name: Literal["mlm"] = "mlm"
    """The objective's name."""
    mask_replace_prob: float = Field(0.8, ge=0, le=1)
    """Share of selected tokens replaced by the mask token."""
    random_replace_prob: float = Field(0.1, ge=0, le=1)
    """Share of selected tokens replaced by a random token; the rest are unchanged."""
    exhaustive_masking: bool | Literal["each"] = False
    """Mask every token of a text exactly once: in ⌈1/mask_rate⌉ rows (true), or in one row per unit (each)."""

    @model_validator(mode="after")
    def _check_probs(self) -> Self:
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-9:
            raise ValueError("mask_replace_prob and random_replace_prob: their sum exceeds 1")
        return self


def masking_units(tokens: Array, allowed: Bools, starts_word: Bools, whole_words: bool) -> list[Ints]:
    """Positions that are masked together: each allowed token, or all tokens of a word."""
    positions = np.flatnonzero(allowed)
    if not whole_words:
        return list(positions[:, None])
    is_start = starts_word[tokens[positions]].copy()
    is_start[1:] |= np.diff(positions) > 1  # a special token between two tokens ends the word
    return np.split(positions, np.flatnonzero(is_start)[is_start[:1].sum() :]) if len(positions) else []


def select_groups(groups: list[Ints], num_selected: int, rng: Generator) -> Ints:
    """Positions of groups in random order, about `num_selected` in all; groups that do not fit are skipped."""
    if groups and all(len(group) == 1 for group in groups):
        order = rng.permutation(len(groups))[:num_selected]
        return np.sort(np.concatenate([groups[index] for index in order]))
    selected: list[Ints] = []
    remaining = num_selected
    for index in rng.permutation(len(groups)):
        if len(groups[index]) <= remaining or not selected:
            selected.append(groups[index])
            remaining -= len(groups[index])
        if remaining <= 0:
            break
    return np.sort(np.concatenate(selected))


def select_spans(words: list[Ints], num_selected: int, settings: TokenSelectionSettings, rng: Generator) -> Ints:
    """Positions of random spans of words with geometric lengths, until about `num_selected` are selected."""
    selected: set[int] = set()
    while len(selected) < num_selected:
        length = int(rng.geometric(settings.span_geometric_p))
        if length > settings.max_span_length:
            continue  # resampled rather than cut, for a mean of 3.8 words (SpanBERT, §3.1)
        start = int(rng.integers(len(words)))
        for word in words[start : start + length]:
            if len(selected) < num_selected:
                selected.update(word.tolist())
    return np.array(sorted(selected), dtype=np.int64)


def select_masked_positions(groups: list[Ints], settings: TokenSelectionSettings, rng: Generator) -> Ints:
    """Sorted positions of about `mask_rate` of the tokens in these groups, at least one if there are any."""
    if not groups:
        return np.zeros(0, np.int64)
    num_selected = max(1, round(settings.mask_rate * sum(map(len, groups))))
    if settings.unit == "span":
        return select_spans(groups, num_selected, settings, rng)
    return select_groups(groups, num_selected, rng)


class MLMObjective(Objective):
    """p(selected tokens | corrupted text): selected tokens are masked, replaced by random ones, or unchanged."""

    Settings = MLMObjectiveSettings
    name = "mlm"
    requires = frozenset({"bidirectional"})
    view = ViewSpec("windows", (("frame", True),))
    heads = {"mlm": Head("vocabulary")}

    def __init__(self, settings: MLMObjectiveSettings, tokenizer: Tokenizer) -> None:
        if tokenizer.mask is None:
            raise MeristemError(
                "objective mlm: this tokenizer has no mask token; train a tokenizer that has one, or use objective=clm"
            )
        self.settings, self.mask_id = settings, tokenizer.mask
        self.starts_word = tokenizer.word_start_mask
        self.regular_ids = np.flatnonzero(~tokenizer.special_mask)
        self.loss_weights = _token_prediction.loss_weights(settings, self.name)
        max_rows = {False: 1, True: int(np.ceil(1 / settings.mask_rate)), "each": MAX_UNITS}
        self.max_rows_per_sample = max_rows[settings.exhaustive_masking]

    def prepare(self, row: Row, draw: RngFactory) -> Row | list[Row]:
        """Select tokens, mask them, and set the originals as targets."""
        rng = draw("mlm")
        tokens = row.inputs["tokens"]
        groups = masking_units(tokens, ~row.metadata["special"], self.starts_word, self.settings.unit != "token")
        if self.settings.exhaustive_masking:
            return self._exhaustive_rows(row, groups, rng)
        positions = select_masked_positions(groups, self.settings, rng)
        return self._mask_row(row, positions, self._replacements(tokens[positions], rng))

    def _replacements(self, originals: Array, rng: Generator) -> Array:
        """BERT's replacements: by default 80 % mask, 10 % a random regular token, 10 % unchanged."""
        draws = rng.random(len(originals))
        random_ids = self.regular_ids[rng.integers(len(self.regular_ids), size=len(originals))]
        s = self.settings
        unmasked = np.where(draws < s.mask_replace_prob + s.random_replace_prob, random_ids, originals)
        return np.where(draws < s.mask_replace_prob, self.mask_id, unmasked)

    def _exhaustive_rows(self, row: Row, groups: list[Ints], rng: Generator) -> list[Row]:
        """Rows in which each group is masked exactly once: ⌈1/mask_rate⌉ rows, or one row per group."""
        order = rng.permutation(len(groups))
        num_rows = max(1, len(groups)) if self.settings.exhaustive_masking == "each" else self.max_rows_per_sample
        rows = []
        for row_index in range(num_rows):
            row_groups = [groups[i] for i in order[row_index::num_rows]]
            positions = np.sort(np.concatenate(row_groups)) if row_groups else np.zeros(0, np.int64)
            rows.append(self._mask_row(row, positions, np.full(len(positions), self.mask_id)))
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
        return _token_prediction.token_loss(self.settings, self.name, model, hidden, batch)
