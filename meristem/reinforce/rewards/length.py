"""Length: whether a text is about as long as it should be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings
from meristem.reinforce.words import words


class LengthSettings(RewardSettings):
    """How long a text should be."""

    name: Literal["length"] = "length"
    """The reward's name."""
    target: int | tuple[int, int]
    """So many words, or from so many to so many: target=20, target=[10,30]."""
    unit: Literal["words", "characters"] = "words"
    """What is counted; an ideograph is a word."""
    slack: float = Field(0.25, gt=0)
    """How far beside it, as a share of the nearer end, a text still gets 0.61; twice as far 0.14."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        low, high = self.range
        if not 0 <= low <= high or high == 0:
            raise ValueError(f"target: from {low} to {high} is no length; give target=20 or target=[10,30]")
        return self

    @property
    def range(self) -> tuple[int, int]:
        """The shortest and the longest that is right."""
        return (self.target, self.target) if isinstance(self.target, int) else self.target


class Length(Reward):
    """exp(−½ (distance / (slack · nearer end))²): 1 within the range, smoothly less beside it."""

    Settings = LengthSettings
    name = "length"

    def __init__(self, settings: LengthSettings, desk: Desk) -> None:
        self.settings = settings

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """Each text by its own length."""
        return [self._judged(one.text) for one in attempts]

    def _judged(self, text: str) -> Judgement:
        s, (low, high) = self.settings, self.settings.range
        size = len(words(text)) if s.unit == "words" else len(text.strip())
        nearer = low if size < low else high
        distance = abs(size - nearer) if not low <= size <= high else 0
        value = math.exp(-0.5 * (distance / (s.slack * max(1, nearer))) ** 2)
        wanted = f"{low}" if low == high else f"{low} to {high}"
        return Judgement(value=value, why={s.unit: float(size), "wanted": wanted})
