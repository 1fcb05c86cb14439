"""What a reward is: it reads what was written for a prompt, and says how good it is and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from meristem.recipe import Recipe
from meristem.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A text that was written for a prompt, with all that is known about the prompt."""

    prompt: str
    """The text that was asked; empty where the prompt is a picture."""
    text: str
    references: tuple[str, ...] = ()
    """Texts that are known to be right for this prompt."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of the prompt's row, by name."""
    ended: bool = True
    """Whether the text came to its end; false where it was cut at the length limit."""
    seed: int = 0
    """Whatever a reward draws for this attempt follows from it (from the run's seed, the epoch and the sample)."""
    place: str = ""
    """`file:line` of the prompt, for messages."""
    picture: str = ""
    """Where the prompt is a picture, the path of its file or its built-in name."""

    @property
    def shown(self) -> str:
        """The prompt as a person sees it: its text, or the picture's name."""
        return self.picture or self.prompt


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a reward thinks of an attempt."""

    value: float
    """Higher is better."""
    why: Mapping[str, float | str] = field(default_factory=dict)
    """What it is made of, in the order of a person's questions."""
    observation: Any = None
    """Plain JSON that a reward with a history wants to see in `remember` when the step is over."""


class RewardSettings(Settings):
    """What every reward can be told."""

    name: str
    """The reward's name."""
    weight: float = Field(1.0, allow_inf_nan=False)
    """How much it counts beside others; below 0 it punishes."""
    title: str | None = None
    """What it is called where its values are shown; its name unless set."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A run that a reward lacks and that is trained before it is made."""

    recipe: str
    """By name or file."""
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where a reward may keep what it fits (vectors, a click model), and how it speaks while it does."""

    folder: Path
    say: Callable[[str], None]


class Reward(ABC):
    """One idea of what is good. Made once; asked at every step with all attempts of a batch."""

    Settings: ClassVar[type[RewardSettings]]
    name: ClassVar[str]

    @classmethod
    def orders(cls, settings: Any) -> dict[str, Order]:
        """Setting → the run that it should name and does not; whoever makes the reward trains it and puts it in."""
        return {}

    @classmethod
    def check_settings(cls, settings: Any, runs: Mapping[str, Recipe]) -> None:
        """Refuse settings that cannot work, in seconds, before anything is trained or fitted for any reward.

        `runs` has, for each setting in `orders`, the recipe of the run that would be trained.
        """
        return

    @abstractmethod
    def __init__(self, settings: Any, desk: Desk) -> None:
        """Read and fit what it needs; what is wrong with that is named here, before any step."""

    @abstractmethod
    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """One judgement for each attempt, in their order; the same attempts are always judged the same."""

    @classmethod
    def keeps_history(cls, settings: Any) -> bool:
        """Whether what it says depends on what the run has written before (`with_history`, `remember`)."""
        return False

    def with_history(self, history: Any) -> Reward:
        """The same reward as it judges after such a history; itself stays as it is. None is an empty history."""
        return self

    def remember(self, history: Any, observations: Sequence[Any]) -> Any:
        """The history, as plain JSON, after a step in which all processes together made these observations.

        It must not depend on the order of the observations, and should be bounded: it is saved with every checkpoint.
        """
        return history

    def check(self, attempts: Sequence[Attempt]) -> None:
        """Refuse prompts that it cannot judge (no reference, no such column) before training; texts are still empty."""
        return
