"""Repetition: how much of a text says again what it has said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings
from meristem.reinforce.words import repeated, words


class RepetitionSettings(RewardSettings):
    """What counts as repeated."""

    name: Literal["repetition"] = "repetition"
    """The reward's name."""
    sizes: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field((2, 3, 4), min_length=1)
    """Runs of so many words."""


class Repetition(Reward):
    """−mean over sizes of the share of runs that were there before: 0 where none was, near −1 where all were."""

    Settings = RepetitionSettings
    name = "repetition"

    def __init__(self, settings: RepetitionSettings, desk: Desk) -> None:
        self.settings = settings

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """Each text by itself."""
        return [self._judged(words(one.text)) for one in attempts]

    def _judged(self, text: list[str]) -> Judgement:
        shares = {f"runs of {size}": repeated(text, size) for size in self.settings.sizes}
        return Judgement(value=0.0 - sum(shares.values()) / len(shares), why={"words": float(len(text)), **shares})
