"""Keyword reward: whether a text contains required words or phrases and none of the forbidden ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from meristem.config.errors import MeristemError, did_you_mean
from meristem.reinforce.reward_base import PromptCompletion, RewardScore, TextReward
from meristem.reinforce.settings import RewardSettings
from meristem.reinforce.word_ngrams import normalized_words

Phrases = tuple[str, ...]


class IncludesRewardSettings(RewardSettings):
    """Required and forbidden words."""

    renamed: ClassVar[dict[str, str]] = {"column": "required_column", "without": "forbidden", "words": "required"}

    name: Literal["includes"] = "includes"
    """The reward's name."""
    required: Phrases = ()
    """Words or phrases that every text must contain: required=[sea,old boat]."""
    required_column: str | None = None
    """Column of the prompts with the required words of each: a list, or comma-separated."""
    forbidden: Phrases = ()
    """Words or phrases that no text may contain."""

    @model_validator(mode="after")
    def _check_phrases(self) -> Self:
        if not (self.required or self.forbidden or self.required_column):
            raise ValueError("includes: give required=[…], required_column=NAME or forbidden=[…]")
        if wordless := [phrase for phrase in (*self.required, *self.forbidden) if not normalized_words(phrase)]:
            raise ValueError(f"includes: {wordless[0]!r} has no word in it")
        return self


class IncludesReward(TextReward[IncludesRewardSettings]):
    """The share of required phrases that are present, minus the share of forbidden ones that are."""

    Settings = IncludesRewardSettings
    name = "includes"
    settings: IncludesRewardSettings

    def check(self, completions: Sequence[PromptCompletion]) -> None:
        """Refuse a prompt without required words."""
        for completion in completions:
            self._required_phrases(completion)

    def score_one(self, completion: PromptCompletion) -> RewardScore:
        """Case and punctuation are ignored."""
        text = _pad_words(completion.text)
        required, forbidden = self._required_phrases(completion), self.settings.forbidden
        missing = [phrase for phrase in required if _pad_words(phrase) not in text]
        present = [phrase for phrase in forbidden if _pad_words(phrase) in text]
        value = (1 - len(missing) / len(required) if required else 0.0) - (
            len(present) / len(forbidden) if present else 0.0
        )
        why: dict[str, float | str] = {}
        if required:
            why |= {
                "found": f"{len(required) - len(missing)} of {len(required)}",
                "missing": ", ".join(missing) or "none",
            }
        if forbidden:
            why["unwanted"] = ", ".join(present) or "none"
        return RewardScore(value=value, why=why)

    def _required_phrases(self, completion: PromptCompletion) -> Phrases:
        """The required phrases of the settings and of the prompt's row."""
        name = self.settings.required_column
        if name is None:
            return self.settings.required
        cell = completion.columns.get(name)
        phrases = tuple(phrase for phrase in _split_cell(cell) if normalized_words(phrase))
        if not phrases:
            suggestion = did_you_mean(name, list(completion.columns)) if cell is None and completion.columns else ""
            raise MeristemError(
                f"{completion.location_prefix}includes: the column {name!r} has no words for this prompt{suggestion}"
            )
        return tuple(dict.fromkeys((*self.settings.required, *phrases)))


def _split_cell(cell: Any) -> list[str]:
    """The phrases of a cell: a list, or comma-separated."""
    if isinstance(cell, str):
        return [part.strip() for part in cell.replace("，", ",").split(",")]
    return [str(part) for part in cell] if isinstance(cell, list | tuple) else []


def _pad_words(text: str) -> str:
    """Normalized words with a space around each, so that only whole words match."""
    return f" {' '.join(normalized_words(text))} "
