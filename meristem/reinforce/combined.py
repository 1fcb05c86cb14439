"""Several rewards as one: weighed and summed, each kept by itself, and nothing wrong let through."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError, RecipeError
from meristem.recipe import Recipe
from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings
from meristem.settings import find

Floats = NDArray[np.float64]
SHOWN = 80
"""Characters of a text in a message."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What all rewards think of attempts, in their order."""

    total: Floats
    """Σ weight · value."""
    parts: Mapping[str, Floats]
    """Each reward's own values, by its name."""
    why: Sequence[Mapping[str, Mapping[str, float | str]]] = field(default_factory=list)
    """For each attempt what each reward's value is made of."""
    observations: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """For each attempt, by name, what rewards with a history want to remember of it."""

    def judgements(self) -> list[Judgement]:
        """One for each attempt: of a single reward its own, of several the sum, made of their values."""
        if len(self.parts) == 1:
            (name,) = self.parts
            return [
                Judgement(value=float(total), why=why[name]) for total, why in zip(self.total, self.why, strict=True)
            ]
        return [
            Judgement(value=float(total), why={name: float(values[at]) for name, values in self.parts.items()})
            for at, total in enumerate(self.total)
        ]


class Rewards:
    """Rewards by name, with their weights; one that stands twice is counted on: grammar, grammar-2."""

    def __init__(
        self,
        rewards: Sequence[Reward],
        weights: Sequence[float],
        titles: Sequence[str | None] | None = None,
        *,
        keeps_history: bool = False,
    ) -> None:
        if not rewards:
            raise RecipeError("rewards: none given; meristem reward lists them")
        named = [title or one.name for one, title in zip(rewards, titles or [None] * len(rewards), strict=True)]
        self.rewards = dict(zip(_unique(named), rewards, strict=True))
        self.weights = dict(zip(self.rewards, weights, strict=True))
        self.keeps_history = keeps_history

    @classmethod
    def of(cls, settings: Sequence[RewardSettings], desk: Desk) -> Rewards:
        """Made from their settings, none of which lacks a run any more."""
        kinds = [find("reinforce.rewards", one.name) for one in settings]
        made = [kind(one, desk) for kind, one in zip(kinds, settings, strict=True)]
        history = any(kind.keeps_history(one) for kind, one in zip(kinds, settings, strict=True))
        return cls(made, [one.weight for one in settings], [one.title for one in settings], keeps_history=history)

    @classmethod
    def made(cls, settings: Sequence[RewardSettings], folder: Path, say: Callable[[str], None]) -> Rewards:
        """The same at a desk of their own: what they fit is kept in the folder."""
        return cls.of(settings, Desk(folder=folder, say=say))

    @staticmethod
    def orders(settings: RewardSettings) -> Mapping[str, Any]:
        """Setting → the run that a reward lacks."""
        found: Mapping[str, Any] = find("reinforce.rewards", settings.name).orders(settings)
        return found

    @staticmethod
    def check_settings(settings: RewardSettings, runs: Mapping[str, Recipe]) -> None:
        """Refuse what a reward cannot work with, before anything is trained."""
        try:
            find("reinforce.rewards", settings.name).check_settings(settings, runs)
        except MeristemError as error:
            raise MeristemError(_named(settings.name, str(error))) from None

    def check(self, attempts: Sequence[Attempt]) -> None:
        """Refuse prompts that one of them cannot judge, before anything is written for them."""
        for name, reward in self.rewards.items():
            try:
                reward.check(attempts)
            except MeristemError as error:
                raise MeristemError(_named(name, str(error))) from None

    def judge(self, attempts: Sequence[Attempt]) -> Verdict:
        """Every reward's judgement of every attempt, each value looked at before it is believed."""
        found = {name: self._asked(name, reward, attempts) for name, reward in self.rewards.items()}
        parts = {name: np.array([one.value for one in some], np.float64) for name, some in found.items()}
        total = np.zeros(len(attempts))
        for name, values in parts.items():
            total += self.weights[name] * values
        why = [{name: some[number].why for name, some in found.items()} for number in range(len(attempts))]
        seen = [
            {name: some[at].observation for name, some in found.items() if some[at].observation is not None}
            for at in range(len(attempts))
        ]
        return Verdict(total=total, parts=parts, why=why, observations=seen)

    def with_history(self, history: Any) -> Rewards:
        """The same rewards as they judge after a history: a mapping from a reward's name to its own."""
        own = history or {}
        if not isinstance(own, dict):
            raise MeristemError("state.json: the rewards' history is not what a run writes: the file was changed")
        bound = copy.copy(self)
        bound.rewards = {name: reward.with_history(own.get(name)) for name, reward in self.rewards.items()}
        return bound

    def remember(self, history: Any, observations: Sequence[Any]) -> Any:
        """Each reward's history after one step more, by name."""
        own = history or {}
        seen = {name: [one[name] for one in observations if name in one] for name in self.rewards}
        return {name: self.rewards[name].remember(own.get(name), some) for name, some in seen.items() if some} | {
            name: kept for name, kept in own.items() if not seen.get(name)
        }

    def _asked(self, name: str, reward: Reward, attempts: Sequence[Attempt]) -> list[Judgement]:
        try:
            found = reward.judge(attempts)
        except MeristemError as error:
            raise MeristemError(_named(name, str(error))) from None
        except Exception as error:  # a reward is anybody's code, and the run must say whose text it was
            about = _about(_cause(reward, attempts)) if attempts else ""
            raise MeristemError(f"reward {name}: {type(error).__name__}: {error}{about}") from error
        if len(found) != len(attempts):
            first = _about(attempts[0]) if attempts else ""
            raise MeristemError(f"reward {name}: {len(found)} judgements for {len(attempts)} texts{first}")
        for attempt, one in zip(attempts, found, strict=True):
            if not math.isfinite(one.value):
                raise MeristemError(f"reward {name}: its value is {one.value}{_about(attempt)}")
        return found


Combined = Rewards  # as `find` knows this file: training reaches the room in no other way


def _unique(names: Sequence[str]) -> Iterator[str]:
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _cause(reward: Reward, attempts: Sequence[Attempt]) -> Attempt:
    """The attempt that a reward raises at, found by asking again one by one; the first where none does it alone."""
    for attempt in attempts:
        try:
            reward.judge([attempt])
        except Exception:  # the one it raised at first is told
            return attempt
    return attempts[0]


def _named(name: str, told: str) -> str:
    """A message that says which reward it is from."""
    said = told.startswith("reward ") or name.partition("-")[0] in told
    return told if said else f"reward {name}: {told}"


def _about(attempt: Attempt) -> str:
    """Which text it was, as the end of a message."""
    where = f"{attempt.place}: " if attempt.place else ""
    return f"\n  {where}prompt {_short(attempt.shown)}\n  text {_short(attempt.text)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
