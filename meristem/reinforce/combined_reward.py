"""Weighted sum of several rewards, with each reward's own values and checks of everything they return."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError, RecipeError
from meristem.reinforce.reward_base import (
    REWARDS,
    PromptCompletion,
    Reward,
    RewardContext,
    RewardScore,
    quote_text,
)
from meristem.reinforce.settings import RewardSettings

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CombinedScores:
    """Scores of completions by all rewards, in order."""

    total: Floats
    """Σ weight · value, per completion."""
    parts: Mapping[str, Floats]
    """Unweighted values of each reward, by name."""
    why: Sequence[Mapping[str, Mapping[str, float | str]]] = field(default_factory=list)
    """For each completion, by reward, what its value is made of."""
    observations: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """For each completion, by reward, what rewards with a history want to remember of it."""

    def reward_scores(self) -> list[RewardScore]:
        """One score per completion: that of a single reward, or the weighted sum with each reward's value as `why`."""
        if len(self.parts) == 1:
            (name,) = self.parts
            return [
                RewardScore(value=float(total), why=why[name]) for total, why in zip(self.total, self.why, strict=True)
            ]
        return [
            RewardScore(value=float(total), why={name: float(values[index]) for name, values in self.parts.items()})
            for index, total in enumerate(self.total)
        ]


class CombinedReward:
    """Rewards by name, with their weights; a repeated name is numbered: grammar, grammar-2."""

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
        names = [title or reward.name for reward, title in zip(rewards, titles or [None] * len(rewards), strict=True)]
        self.rewards = dict(zip(_unique_names(names), rewards, strict=True))
        self.weights = dict(zip(self.rewards, weights, strict=True))
        self.keeps_history = keeps_history

    @classmethod
    def from_settings(cls, settings: Sequence[RewardSettings], context: RewardContext) -> CombinedReward:
        """Built from their settings, in which all required runs are filled in."""
        classes = [REWARDS[reward_settings.name] for reward_settings in settings]
        pairs = list(zip(classes, settings, strict=True))
        return cls(
            [reward(reward_settings, context) for reward, reward_settings in pairs],
            [reward_settings.weight for reward_settings in settings],
            [reward_settings.title for reward_settings in settings],
            keeps_history=any(reward.keeps_history(reward_settings) for reward, reward_settings in pairs),
        )

    def check(self, completions: Sequence[PromptCompletion]) -> None:
        """Refuse prompts that one of the rewards cannot score, before anything is generated for them."""
        for name, reward in self.rewards.items():
            try:
                reward.check(completions)
            except MeristemError as error:
                raise MeristemError(add_reward_name(name, str(error))) from None

    def score(self, completions: Sequence[PromptCompletion]) -> CombinedScores:
        """Scores of every completion by every reward; raises where a value is missing or not finite."""
        scores = {name: self._score_one(name, reward, completions) for name, reward in self.rewards.items()}
        parts = {name: np.array([score.value for score in column], np.float64) for name, column in scores.items()}
        total = np.zeros(len(completions))
        for name, values in parts.items():
            total += self.weights[name] * values
        rows = [{name: column[index] for name, column in scores.items()} for index in range(len(completions))]
        why = [{name: score.why for name, score in row.items()} for row in rows]
        observations = [
            {name: score.observation for name, score in row.items() if score.observation is not None} for row in rows
        ]
        return CombinedScores(total=total, parts=parts, why=why, observations=observations)

    def with_history(self, history: Any) -> CombinedReward:
        """The same rewards, scoring with a history: a mapping from a reward's name to its own history."""
        histories = history or {}
        if not isinstance(histories, dict):
            raise MeristemError("state.json: the history of the rewards is invalid: the file was changed")
        bound = copy.copy(self)
        bound.rewards = {name: reward.with_history(histories.get(name)) for name, reward in self.rewards.items()}
        return bound

    def remember(self, history: Any, observations: Sequence[Any]) -> Any:
        """The history of each reward after one more step, by name."""
        histories = history or {}
        by_reward = {
            name: [observation[name] for observation in observations if name in observation] for name in self.rewards
        }
        return {
            name: self.rewards[name].remember(histories.get(name), reward_observations)
            for name, reward_observations in by_reward.items()
            if reward_observations
        } | {name: reward_history for name, reward_history in histories.items() if not by_reward.get(name)}

    def _score_one(self, name: str, reward: Reward, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        try:
            scores = reward.score(completions)
        except MeristemError as error:
            raise MeristemError(add_reward_name(name, str(error))) from None
        except Exception as error:  # rewards may be user code: the message must name the text that it failed on
            description = _describe_completion(_find_failing(reward, completions)) if completions else ""
            raise MeristemError(f"reward {name}: {type(error).__name__}: {error}{description}") from error
        if len(scores) != len(completions):
            first_completion = _describe_completion(completions[0]) if completions else ""
            raise MeristemError(f"reward {name}: {len(scores)} scores for {len(completions)} texts{first_completion}")
        for completion, score in zip(completions, scores, strict=True):
            if not math.isfinite(score.value):
                raise MeristemError(f"reward {name}: its value is {score.value}{_describe_completion(completion)}")
        return scores


def _unique_names(names: Sequence[str]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for name in names:
        counts[name] += 1
        yield name if counts[name] == 1 else f"{name}-{counts[name]}"


def _find_failing(reward: Reward, completions: Sequence[PromptCompletion]) -> PromptCompletion:
    """The completion that a reward fails on, found by scoring one at a time; the first if none fails alone."""
    for completion in completions:
        try:
            reward.score([completion])
        except Exception:  # the original error is reported
            return completion
    return completions[0]


def add_reward_name(name: str, message: str) -> str:
    """The message, prefixed with the reward's name unless it has it."""
    has_name = message.startswith("reward ") or name.partition("-")[0] in message
    return message if has_name else f"reward {name}: {message}"


def _describe_completion(completion: PromptCompletion) -> str:
    """The completion with its prompt, as the end of an error message."""
    prompt, text = quote_text(completion.prompt_label), quote_text(completion.text)
    return f"\n  {completion.location_prefix}prompt {prompt}\n  text {text}"
