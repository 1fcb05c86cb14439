"""Length reward: whether a text is about as long as it should be."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.reinforce.reward_base import PromptCompletion, RewardScore, TextReward
from meristem.reinforce.settings import RewardSettings
from meristem.reinforce.word_ngrams import normalized_words


class LengthRewardSettings(RewardSettings):
    """The target length."""

    renamed: ClassVar[dict[str, str]] = {"slack": "tolerance"}

    name: Literal["length"] = "length"
    """The reward's name."""
    target: int | tuple[int, int]
    """Number of words, or a range: target=20, target=[10,30]."""
    unit: Literal["words", "characters"] = "words"
    """What is counted; an ideograph is a word."""
    tolerance: float = Field(0.25, gt=0)
    """Tolerance as a share of the nearer bound: a text that far outside gets 0.61, one twice as far 0.14."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        low, high = self.range
        if not 0 <= low <= high or high == 0:
            raise ValueError(f"target: from {low} to {high} is not a length; give target=20 or target=[10,30]")
        return self

    @property
    def range(self) -> tuple[int, int]:
        """The shortest and the longest target length."""
        return (self.target, self.target) if isinstance(self.target, int) else self.target


class LengthReward(TextReward[LengthRewardSettings]):
    """exp(−½ (distance / (slack · nearer bound))²): 1 within the range, smoothly less outside."""

    Settings = LengthRewardSettings
    name = "length"
    settings: LengthRewardSettings

    def score_one(self, completion: PromptCompletion) -> RewardScore:
        """The text by its own length."""
        text, reward, (low, high) = completion.text, self.settings, self.settings.range
        size = len(normalized_words(text)) if reward.unit == "words" else len(text.strip())
        nearest_bound = low if size < low else high
        distance = abs(size - nearest_bound) if not low <= size <= high else 0
        value = math.exp(-0.5 * (distance / (reward.tolerance * max(1, nearest_bound))) ** 2)
        target_text = f"{low}" if low == high else f"{low} to {high}"
        return RewardScore(value=value, why={reward.unit: float(size), "wanted": target_text})
