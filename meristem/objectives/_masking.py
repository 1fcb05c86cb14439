"""Masking of tokens, shared by masked objectives: replacements, a mask rate that falls, and adaptive masking.

A row is masked once when it is prepared, at `mask_rate`: evaluation reads that. Where the rate falls or depends on what
the model has learned, training masks the row again in the step itself (`TokenMasker.remask`), from random numbers that
were drawn with the row. So the masks depend only on (seed, epoch, sample), the progress of the run and its history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Array, Batch
from meristem.objectives._token_prediction import TokenLossSettings
from meristem.objectives._token_selection import (
    Ints,
    TokenSelectionSettings,
    fitting_groups,
    select_masked_positions,
)
from meristem.tokenizers.tokenizer import Tokenizer

Floats = NDArray[np.float64]
ACCURACY_DECAY = 0.98
"""Decay of a token's running accuracy per prediction: the mean of about the last fifty."""
CANDIDATES = "masking"
"""Key of a row's `MaskCandidates` in its metadata."""


class MaskingSettings(TokenLossSettings, TokenSelectionSettings):
    """Settings of masking: what replaces selected tokens, and how the selection changes during training."""

    added = frozenset({"initial_mask_rate", "adaptive_masking", "min_adaptive_weight"})

    renamed: ClassVar[dict[str, str]] = {
        "mask_share": "mask_replace_prob",
        "random_share": "random_replace_prob",
    }

    needs: ClassVar[SettingConditions] = {
        "min_adaptive_weight": (when("adaptive_masking"),),
    }

    name: str
    """The objective's name."""
    mask_replace_prob: float = Field(0.8, ge=0, le=1)
    """Share of selected tokens replaced by the mask token."""
    random_replace_prob: float = Field(0.1, ge=0, le=1)
    """Share of selected tokens replaced by a random token; the rest are unchanged."""
    initial_mask_rate: float | None = Field(None, gt=0, lt=1)
    """Mask rate at the first step, falling linearly to `mask_rate` at the end (Yang et al. 2023); constant if none."""
    adaptive_masking: bool = False
    """Select tokens that the model predicts badly more often (AMLM, Edman & Fraser 2025); the rate stays the same."""
    min_adaptive_weight: float = Field(0.2, gt=0, le=1)
    """Adaptive masking: lowest weight of a token in the selection; one that is never predicted has 1."""

    @model_validator(mode="after")
    def _check_masking(self) -> Self:
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-9:
            raise ValueError("mask_replace_prob and random_replace_prob: their sum exceeds 1")
        if self.unit == "span" and self.changes_in_training:
            raise ValueError(
                "unit: initial_mask_rate and adaptive_masking select tokens or words; use unit=token or unit=word"
            )
        return self

    @property
    def changes_in_training(self) -> bool:
        """Whether the selection depends on the progress or the history of the run."""
        return self.adaptive_masking or self.initial_mask_rate is not None

    @property
    def privacy_obstacle(self) -> str | None:
        """The running accuracy of each token would carry texts from step to step without noise."""
        if self.adaptive_masking:
            return "adaptive_masking carries the accuracy of each token from step to step; leave it out"
        return super().privacy_obstacle

    def rate_at(self, progress: float) -> float:
        """The mask rate after this share of the run."""
        start = self.mask_rate if self.initial_mask_rate is None else self.initial_mask_rate
        return start + (self.mask_rate - start) * min(1.0, progress)


@dataclass(frozen=True, kw_only=True)
class MaskCandidates:
    """What a row can be masked from in the training step: its tokens, and the random numbers drawn with it."""

    tokens: Array
    """The tokens of the row before masking."""
    groups: list[Ints]
    """Positions that are masked together."""
    exponentials: Floats
    """An exponential variate per group: the groups with the smallest, divided by their weights, are selected."""
    replacements: Array
    """The replacement of each token of the row, if it is selected."""


class TokenMasker:
    """Selects and replaces the tokens of rows; keeps the running accuracy of each token of the vocabulary."""

    def __init__(self, settings: MaskingSettings, tokenizer: Tokenizer, objective: str) -> None:
        if tokenizer.mask is None:
            raise MeristemError(
                f"objective {objective}: this tokenizer has no mask token; train a tokenizer that has one, or use "
                "objective=clm"
            )
        self.settings, self.mask_id, self.vocab_size = settings, tokenizer.mask, tokenizer.vocab_size
        self.regular_ids = np.flatnonzero(~tokenizer.special_mask)

    def mask(self, tokens: Array, groups: list[Ints], rng: Generator) -> tuple[Ints, Array]:
        """Selected positions at `mask_rate` and their replacements."""
        positions = select_masked_positions(groups, self.settings, rng)
        return positions, self.replacements(tokens[positions], rng)

    def replacements(self, originals: Array, rng: Generator) -> Array:
        """BERT's replacements: by default 80 % mask, 10 % a random regular token, 10 % unchanged."""
        draws = rng.random(len(originals))
        random_ids = self.regular_ids[rng.integers(len(self.regular_ids), size=len(originals))]
        s = self.settings
        unmasked = np.where(draws < s.mask_replace_prob + s.random_replace_prob, random_ids, originals)
        return np.where(draws < s.mask_replace_prob, self.mask_id, unmasked)

    def candidates(self, tokens: Array, groups: list[Ints], rng: Generator) -> dict[str, MaskCandidates]:
        """Metadata of a row for `remask`; none if the selection never changes."""
        if not self.settings.changes_in_training:
            return {}
        drawn = MaskCandidates(
            tokens=tokens,
            groups=groups,
            exponentials=rng.exponential(size=len(groups)),
            replacements=self.replacements(tokens, rng),
        )
        return {CANDIDATES: drawn}

    def remask(self, batch: Batch, term: str, history: Any = None, *, shift: int = 0) -> Batch:
        """The batch masked for its progress and history; the target of position t is predicted at t − `shift`."""
        rate, weights = self.settings.rate_at(batch.progress), self._token_weights(history)
        tokens = batch.inputs["tokens"]
        masked_rows, is_masked_again = np.zeros(tokens.shape, np.int64), np.zeros(tokens.shape, bool)
        at, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for row_index, metadata in enumerate(batch.metadata):
            candidates: MaskCandidates | None = metadata.get(CANDIDATES)
            if candidates is None:
                continue
            positions = _select(candidates, rate, weights)
            row = candidates.tokens.copy()
            row[positions] = candidates.replacements[positions]
            masked_rows[row_index, : len(row)] = row
            is_masked_again[row_index, : len(row)] = True
            at.append(positions - shift + row_index * tokens.shape[1])
            values.append(candidates.tokens[positions])
        labels = {
            "at": torch.from_numpy(np.concatenate(at)).to(tokens.device),
            "values": torch.from_numpy(np.concatenate(values).astype(np.int64)).to(tokens.device),
        }
        # the tokens are not read here: FLOPs are counted with batches on the meta device, which have no values
        masked = torch.where(
            torch.from_numpy(is_masked_again).to(tokens.device), torch.from_numpy(masked_rows).to(tokens), tokens
        )
        inputs = {**batch.inputs, "tokens": masked}
        return replace(batch, inputs=inputs, targets={**batch.targets, term: labels})

    def _token_weights(self, history: Any) -> Floats | None:
        """Weight of each token id in the selection: 1 − its accuracy; None without adaptive masking."""
        if not self.settings.adaptive_masking or history is None:
            return None
        return np.maximum(1 - np.array(history["accuracy"], np.float64), self.settings.min_adaptive_weight)

    def update_history(self, history: Any, observations: Sequence[Any]) -> Any:
        """The running accuracy of each token id after a step, from (ids, predictions, correct predictions)."""
        correct, predicted = np.zeros(self.vocab_size), np.zeros(self.vocab_size)
        for observation in observations:
            np.add.at(predicted, observation["ids"], observation["predicted"])
            np.add.at(correct, observation["ids"], observation["correct"])
        accuracy = np.zeros(self.vocab_size) if history is None else np.array(history["accuracy"], np.float64)
        seen = predicted > 0
        share = 1 - ACCURACY_DECAY ** predicted[seen]
        accuracy[seen] += share * (correct[seen] / predicted[seen] - accuracy[seen])
        return {"accuracy": np.round(accuracy, 6).tolist()}


def _select(candidates: MaskCandidates, rate: float, weights: Floats | None) -> Ints:
    """Sorted positions of a weighted sample of groups without replacement (Efraimidis & Spirakis 2006)."""
    groups = candidates.groups
    if not groups:
        return np.zeros(0, np.int64)
    keys = candidates.exponentials
    if weights is not None:
        keys = keys / np.array([weights[candidates.tokens[group]].mean() for group in groups])
    num_selected = max(1, round(rate * sum(map(len, groups))))
    return fitting_groups(groups, np.argsort(keys, kind="stable"), num_selected)
