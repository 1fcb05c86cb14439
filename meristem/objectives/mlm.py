"""Masked language modelling: some tokens are hidden and predicted from both sides (SPEC B2, B3)."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from meristem.batch import Array, Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, View
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.objectives import _words
from meristem.settings import Settings
from meristem.tokenizers.tokenizer import Tokenizer

MOST_UNITS = 1 << 12
"""Units that a text may have where each is hidden by itself."""
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class ChoiceSettings(Settings):
    """Which tokens are chosen."""

    needs: ClassVar[Dependences] = {
        "span_stop": (when("unit", "span"),),
        "span_longest": (when("unit", "span"),),
    }

    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of tokens that are chosen (Devlin et al. §3.1)."""
    unit: Literal["token", "word", "span"] = "token"
    """What is chosen together: single tokens, whole words, or spans of whole words (SpanBERT)."""
    span_stop: float = Field(0.2, gt=0, lt=1)
    """Spans end after each word with this probability (p of the geometric distribution)."""
    span_longest: int = Field(10, ge=1)
    """Words in the longest span."""


class MLMSettings(_words.WordsSettings, ChoiceSettings):
    """What a masked objective can be told."""

    needs: ClassVar[Dependences] = {
        "mask_rate": (when("exhaustive", False, True),),
        "mask_share": (when("exhaustive", False),),
        "random_share": (when("exhaustive", False),),
        "span_stop": (when("exhaustive", False),),
        "span_longest": (when("exhaustive", False),),
    }

    name: Literal["mlm"] = "mlm"
    """The objective's name."""
    mask_share: float = Field(0.8, ge=0, le=1)
    """Of the chosen, the share replaced by the mask token."""
    random_share: float = Field(0.1, ge=0, le=1)
    """Of the chosen, the share replaced by a random token; the rest are kept."""
    exhaustive: bool | Literal["each"] = False
    """Every token of a text is hidden exactly once: true in ⌈1/mask_rate⌉ rows, each in one row for every unit."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise ValueError("mask_share and random_share together exceed 1")
        return self


def units(tokens: Array, allowed: Bools, starts_word: Bools, whole: bool) -> list[Ints]:
    """Positions that are hidden together: each allowed token, or each word with all its pieces."""
    places = np.flatnonzero(allowed)
    if not whole:
        return list(places[:, None])
    first = starts_word[tokens[places]].copy()
    first[1:] |= np.diff(places) > 1  # a special token between two pieces ends the word
    return np.split(places, np.flatnonzero(first)[first[:1].sum() :]) if len(places) else []


def choose(groups: list[Ints], wanted: int, rng: Generator) -> Ints:
    """Groups in random order until about `wanted` positions are chosen; the last that overshoots is left out."""
    if groups and all(len(group) == 1 for group in groups):
        picked = rng.permutation(len(groups))[:wanted]
        return np.sort(np.concatenate([groups[i] for i in picked]))
    chosen: list[Ints] = []
    room = wanted
    for i in rng.permutation(len(groups)):
        if len(groups[i]) <= room or not chosen:
            chosen.append(groups[i])
            room -= len(groups[i])
        if room <= 0:
            break
    return np.sort(np.concatenate(chosen))


def choose_spans(words: list[Ints], wanted: int, settings: ChoiceSettings, rng: Generator) -> Ints:
    """Spans of words with geometric lengths at random places, until about `wanted` positions are chosen."""
    chosen: set[int] = set()
    while len(chosen) < wanted:
        length = int(rng.geometric(settings.span_stop))
        if length > settings.span_longest:
            continue  # drawn again, not cut off: only so is the mean 3.8 words (SpanBERT §3.1)
        start = int(rng.integers(len(words)))
        for word in words[start : start + length]:
            if len(chosen) < wanted:
                chosen.update(word.tolist())
    return np.array(sorted(chosen), dtype=np.int64)


def chosen(groups: list[Ints], settings: ChoiceSettings, rng: Generator) -> Ints:
    """The sorted positions of about `mask_rate` of the tokens in these groups, at least one if there is any."""
    if not groups:
        return np.zeros(0, np.int64)
    wanted = max(1, round(settings.mask_rate * sum(map(len, groups))))
    if settings.unit == "span":
        return choose_spans(groups, wanted, settings, rng)
    return choose(groups, wanted, rng)


class MLM(Objective):
    """p(x_chosen | the rest), the chosen ones hidden behind a mask, a random token, or nothing."""

    Settings = MLMSettings
    name = "mlm"
    needs = frozenset({"bidirectional"})
    view = View("windows", (("frame", True),))
    heads = {"mlm": Head("vocabulary")}

    def __init__(self, settings: MLMSettings, tokenizer: Tokenizer) -> None:
        if tokenizer.mask is None:
            raise MeristemError("objective mlm: this tokenizer has no mask token; train one, or use objective=clm")
        self.settings, self.mask = settings, tokenizer.mask
        self.starts_word = tokenizer.starts_word
        self.ordinary = np.flatnonzero(~tokenizer.specials)
        self.weights = _words.weights(settings, self.name)
        rows = {False: 1, True: int(np.ceil(1 / settings.mask_rate)), "each": MOST_UNITS}
        self.rows_per_sample = rows[settings.exhaustive]

    def prepare(self, row: Row, draw: Draws) -> Row | list[Row]:
        """Choose tokens, hide them, and remember what they were."""
        rng = draw("mlm")
        tokens = row.inputs["tokens"]
        groups = units(tokens, ~row.notes["special"], self.starts_word, self.settings.unit != "token")
        if self.settings.exhaustive:
            return self._every(row, groups, rng)
        at = chosen(groups, self.settings, rng)
        return self._hidden(row, at, self._replacements(tokens[at], rng))

    def _replacements(self, originals: Array, rng: Generator) -> Array:
        """80 % the mask, 10 % a random ordinary token, 10 % as it was."""
        fate = rng.random(len(originals))
        random = self.ordinary[rng.integers(len(self.ordinary), size=len(originals))]
        s = self.settings
        kept = np.where(fate < s.mask_share + s.random_share, random, originals)
        return np.where(fate < s.mask_share, self.mask, kept)

    def _every(self, row: Row, groups: list[Ints], rng: Generator) -> list[Row]:
        """The groups dealt out to as many rows as it takes for each to be masked once: few rows, or one for each."""
        deal = rng.permutation(len(groups))
        parts = max(1, len(groups)) if self.settings.exhaustive == "each" else self.rows_per_sample
        rows = []
        for part in range(parts):
            mine = [groups[i] for i in deal[part::parts]]
            at = np.sort(np.concatenate(mine)) if mine else np.zeros(0, np.int64)
            rows.append(self._hidden(row, at, np.full(len(at), self.mask)))
        return rows

    def _hidden(self, row: Row, at: Ints, shown: Array) -> Row:
        tokens = row.inputs["tokens"].copy()
        goal = {"at": at, "values": tokens[at]}
        tokens[at] = shown
        return Row(
            inputs={**row.inputs, "tokens": tokens},
            goals={**row.goals, "mlm": goal},
            notes=row.notes,
            sample=row.sample,
        )

    def count(self, batch: Batch) -> dict[str, int]:
        """Only the chosen are predicted."""
        return _words.count(self.settings, self.name, batch)

    def wanted(self, batch: Batch) -> Tensor | None:
        """Only the chosen are read, unless all states are held small."""
        return None if self.settings.l1_states else batch.goals["mlm"]["at"]

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the hidden tokens."""
        return _words.judge(self.settings, self.name, model, hidden, batch)
