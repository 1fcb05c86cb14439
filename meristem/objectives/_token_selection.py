"""Token selection for masking: settings, and random tokens, whole words or spans of a row (BERT, SpanBERT)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from meristem.config.conditions import SettingConditions, when
from meristem.inputs.batch import Array
from meristem.objectives.settings import ObjectiveSettings

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class TokenSelectionSettings(ObjectiveSettings):
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
    return fitting_groups(groups, rng.permutation(len(groups)), num_selected)


def fitting_groups(groups: list[Ints], order: Ints, num_selected: int) -> Ints:
    """Sorted positions of groups in this order, about `num_selected` in all; groups that do not fit are skipped."""
    if groups and all(len(group) == 1 for group in groups):
        return np.sort(np.concatenate([groups[index] for index in order[:num_selected]]))
    selected: list[Ints] = []
    remaining = num_selected
    for index in order:
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
