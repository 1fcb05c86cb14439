"""Includes: whether a text has the words that it must have, and none that it must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import model_validator

from meristem.errors import MeristemError, did_you_mean
from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings
from meristem.reinforce.words import words

Phrases = tuple[str, ...]


class IncludesSettings(RewardSettings):
    """Which words."""

    name: Literal["includes"] = "includes"
    """The reward's name."""
    words: Phrases = ()
    """Words or phrases that every text must have: words=[sea,old boat]."""
    column: str | None = None
    """The column of the prompts with those that the text of each must have: a list, or with commas between."""
    without: Phrases = ()
    """Words or phrases that no text may have."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not (self.words or self.without or self.column):
            raise ValueError("includes: give words=[…], column=NAME or without=[…]")
        if wordless := [phrase for phrase in (*self.words, *self.without) if not words(phrase)]:
            raise ValueError(f"includes: {wordless[0]!r} has no word in it")
        return self


class Includes(Reward):
    """The share of wanted words that are there, less the share of unwanted ones that are."""

    Settings = IncludesSettings
    name = "includes"

    def __init__(self, settings: IncludesSettings, desk: Desk) -> None:
        self.settings = settings

    def check(self, attempts: Sequence[Attempt]) -> None:
        """Refuse a prompt whose words are missing."""
        for one in attempts:
            self._wanted(one)

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """Each text by itself; capitals and punctuation do not count."""
        return [self._judged(one) for one in attempts]

    def _judged(self, attempt: Attempt) -> Judgement:
        text = _spaced(attempt.text)
        wanted, unwanted = self._wanted(attempt), self.settings.without
        missing = [phrase for phrase in wanted if _spaced(phrase) not in text]
        wrong = [phrase for phrase in unwanted if _spaced(phrase) in text]
        value = (1 - len(missing) / len(wanted) if wanted else 0.0) - (len(wrong) / len(unwanted) if wrong else 0.0)
        why: dict[str, float | str] = {}
        if wanted:
            why |= {"found": f"{len(wanted) - len(missing)} of {len(wanted)}", "missing": ", ".join(missing) or "none"}
        if unwanted:
            why["unwanted"] = ", ".join(wrong) or "none"
        return Judgement(value=value, why=why)

    def _wanted(self, attempt: Attempt) -> Phrases:
        """The phrases of the settings and of the prompt's row."""
        name = self.settings.column
        if name is None:
            return self.settings.words
        found = attempt.columns.get(name)
        phrases = tuple(phrase for phrase in _phrases(found) if words(phrase))
        if not phrases:
            where = f"{attempt.place}: " if attempt.place else ""
            known = did_you_mean(name, list(attempt.columns)) if found is None and attempt.columns else ""
            raise MeristemError(f"{where}includes: the column {name!r} has no words for this prompt{known}")
        return tuple(dict.fromkeys((*self.settings.words, *phrases)))


def _phrases(cell: Any) -> list[str]:
    """A cell with a list, or with commas between."""
    if isinstance(cell, str):
        return [part.strip() for part in cell.replace("，", ",").split(",")]
    return [str(part) for part in cell] if isinstance(cell, list | tuple) else []


def _spaced(text: str) -> str:
    """Words with a space round each, so that whole ones are found."""
    return f" {' '.join(words(text))} "
