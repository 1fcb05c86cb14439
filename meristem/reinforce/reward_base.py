"""The reward interface: a reward reads completions of prompts and returns a score with an explanation for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic

from typing_extensions import TypeVar

from meristem.config.recipe import Recipe
from meristem.config.registry import ComponentKind, Registry
from meristem.reinforce.settings import RewardSettings
from meristem.utils.result_tables import Record, Tabular

MAX_SHOWN_CHARS = 80
"""Characters of a text shown in an error message."""


@dataclass(frozen=True, kw_only=True)
class PromptCompletion:
    """A completion of a prompt, with everything known about the prompt."""

    prompt: str
    """The prompt's text; empty where the prompt is an image."""
    text: str
    references: tuple[str, ...] = ()
    """Reference texts for this prompt."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of the prompt's row, by name."""
    ended: bool = True
    """Whether the text ended with the end token; false where it was cut at the length limit."""
    seed: int = 0
    """Seed of everything that a reward samples for this completion (from the run's seed, the epoch and the sample)."""
    location: str = ""
    """`file:line` of the prompt, for messages."""
    picture: str = ""
    """Where the prompt is an image, the path of its file or its built-in name."""

    @property
    def location_prefix(self) -> str:
        """The location as the beginning of a message; empty where it is unknown."""
        return f"{self.location}: " if self.location else ""

    @property
    def prompt_label(self) -> str:
        """The prompt as shown to a person: its text, or the image's name."""
        return self.picture or self.prompt


@dataclass(frozen=True, kw_only=True)
class RewardScore(Tabular):
    """The score of a completion by one reward."""

    value: float
    """Higher is better."""
    why: Mapping[str, float | str] = field(default_factory=dict)
    """What the value is made of, most important first."""
    observation: Any = None
    """Plain JSON that a reward with a history receives in `remember` after the step."""

    def records(self) -> list[Record]:
        """One row: the value, and what it is made of."""
        return [{"value": self.value, **self.why}]


@dataclass(frozen=True, kw_only=True)
class RequiredRun:
    """A run that a reward requires and that is trained before the reward is built."""

    recipe: str
    """Name or file of the recipe."""
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RewardContext:
    """The folder where a reward caches what it fits (vectors, a click model), and how it logs."""

    folder: Path
    say: Callable[[str], None]


S = TypeVar("S", bound=RewardSettings, default=Any)
"""Settings of a reward; of an unknown class where a reward is one of several, as the registry returns it."""


class Reward(ABC, Generic[S]):
    """A scoring function. Built once; called at every step with all completions of a batch."""

    Settings: ClassVar[type[RewardSettings]]
    name: ClassVar[str]

    @classmethod
    def required_runs(cls, settings: S) -> dict[str, RequiredRun]:
        """Setting → the run that it should name and does not; the caller trains it and fills it in."""
        return {}

    @classmethod
    def check_settings(cls, settings: S, runs: Mapping[str, Recipe]) -> None:
        """Refuse settings that cannot work, within seconds, before anything is trained or fitted for any reward.

        `runs` has, for each setting in `required_runs`, the recipe of the run that would be trained.
        """
        return

    @abstractmethod
    def __init__(self, settings: S, context: RewardContext) -> None:
        """Load and fit what it needs; problems are raised here, before the first step."""

    @abstractmethod
    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """One score per completion, in order; the same completions always get the same scores."""

    @classmethod
    def keeps_history(cls, settings: S) -> bool:
        """Whether scores depend on what the run has generated before (`with_history`, `remember`)."""
        return False

    def with_history(self, history: Any) -> Reward:
        """A copy of the reward that scores with this history; the original is unchanged. None is an empty history."""
        return self

    def remember(self, history: Any, observations: Sequence[Any]) -> Any:
        """The history, as plain JSON, after a step in which all processes together made these observations.

        It must not depend on the order of the observations, and should be bounded: it is saved with every checkpoint.
        """
        return history

    def check(self, completions: Sequence[PromptCompletion]) -> None:
        """Refuse prompts that it cannot score (no reference, no such column) before training; texts are still empty."""
        return


class TextReward(Reward[S]):
    """A reward that scores each completion by itself."""

    def __init__(self, settings: S, context: RewardContext) -> None:
        self.settings = settings

    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """One score per completion, in order."""
        return [self.score_one(completion) for completion in completions]

    @abstractmethod
    def score_one(self, completion: PromptCompletion) -> RewardScore:
        """The score of one completion."""


def quote_text(text: str) -> str:
    """A text in quotes for an error message, shortened where it is long."""
    return repr(text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…")


REWARDS: Registry[Reward] = Registry(ComponentKind.REWARD, Reward)  # type: ignore[type-abstract]
"""Rewards by name: `REWARDS["length"]` is the class in reinforce/rewards/length.py."""
