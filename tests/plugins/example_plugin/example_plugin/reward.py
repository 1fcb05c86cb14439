"""Vowels reward: the share of vowels among the letters of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from meristem.reinforce.reward_base import PromptCompletion, Reward, RewardContext, RewardScore
from meristem.reinforce.settings import RewardSettings


class VowelsRewardSettings(RewardSettings):
    """Which letters count."""

    name: Literal["vowels"] = "vowels"
    """The reward's name."""
    vowels: str = "aeiou"
    """The letters that are vowels."""


class VowelsReward(Reward):
    """Vowels divided by letters; 0 for a text without letters."""

    Settings = VowelsRewardSettings
    name = "vowels"

    def __init__(self, settings: VowelsRewardSettings, context: RewardContext) -> None:
        self.settings = settings

    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """Each text by itself."""
        return [self._score_one(completion.text.lower()) for completion in completions]

    def _score_one(self, text: str) -> RewardScore:
        letters = [letter for letter in text if letter.isalpha()]
        vowels = sum(letter in self.settings.vowels for letter in letters)
        return RewardScore(value=vowels / max(1, len(letters)), why={"vowels": float(vowels)})
