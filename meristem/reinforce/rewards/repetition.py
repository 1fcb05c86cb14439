"""Repetition penalty: the share of n-grams that a text repeats."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from meristem.reinforce.reward_base import PromptCompletion, RewardScore, TextReward
from meristem.reinforce.settings import RewardSettings
from meristem.reinforce.word_ngrams import normalized_words, repeated_ngram_share


class RepetitionRewardSettings(RewardSettings):
    """Which n-grams are counted."""

    renamed: ClassVar[dict[str, str]] = {"sizes": "ngram_sizes"}

    name: Literal["repetition"] = "repetition"
    """The reward's name."""
    ngram_sizes: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field((2, 3, 4), min_length=1)
    """Sizes of the n-grams, in words."""


class RepetitionReward(TextReward[RepetitionRewardSettings]):
    """−mean over sizes of the share of repeated n-grams: 0 without repetition, near −1 where everything repeats."""

    Settings = RepetitionRewardSettings
    name = "repetition"
    settings: RepetitionRewardSettings

    def score_one(self, completion: PromptCompletion) -> RewardScore:
        """The repeated n-grams of each size, ignoring case and punctuation."""
        tokens = normalized_words(completion.text)
        shares = {f"runs of {size}": repeated_ngram_share(tokens, size) for size in self.settings.ngram_sizes}
        return RewardScore(value=0.0 - sum(shares.values()) / len(shares), why={"words": float(len(tokens)), **shares})
