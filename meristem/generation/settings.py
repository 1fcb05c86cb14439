"""Settings of text generation: sampling and beam search."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, model_validator

from meristem.config.settings import Settings


class SamplingSettings(Settings):
    """Sampling and beam search settings."""

    renamed: ClassVar[dict[str, str]] = {"early": "early_stopping", "no_repeat": "no_repeat_ngram_size"}

    temperature: float = Field(1.0, gt=0)
    """Below 1 the distribution becomes sharper, above 1 flatter; 0 is greedy decoding."""
    top_k: int | None = Field(None, ge=1)
    """Sample only from this many most probable tokens."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Sample only from the fewest tokens that together have this probability (nucleus sampling)."""
    repetition_penalty: float = Field(1.0, gt=0)
    """Logits of tokens already in the text are divided (multiplied, below 0) by this (Keskar et al. 2019)."""
    greedy: bool = False
    """Always choose the most probable token; no sampling."""
    beams: int = Field(1, ge=1)
    """Number of beams of beam search; 1 means no beam search."""
    length_penalty: float = Field(1.0, ge=0)
    """Beams are ranked by log-probability / tokens ** this; 0 favours short texts."""
    early_stopping: bool = False
    """Beam search ends once no beam would win if it ended now, not only once none can ever win."""
    no_repeat_ngram_size: int | None = Field(None, ge=1)
    """No n-gram of this many tokens occurs twice in a text: 3 means no repeated trigram."""
    max_tokens: int = Field(100, ge=1)
    """Maximum number of tokens generated after a prompt."""
    min_tokens: int = Field(0, ge=0)
    """The end token is not chosen before a text has this many new tokens."""
    stop: tuple[str, ...] = ()
    """Strings at which a text ends; they are not part of it."""
    seed: int | None = None
    """The same seed gives the same text; without one, every call draws a new seed."""

    @model_validator(mode="before")
    @classmethod
    def _greedy_at_zero(cls, values: Any) -> Any:
        """A temperature of 0 as greedy decoding."""
        is_zero = isinstance(values, Mapping) and values.get("temperature") == 0
        return {**values, "temperature": 1.0, "greedy": True} if is_zero else values

    @property
    def is_sampled(self) -> bool:
        """Whether tokens are drawn at random."""
        return not (self.greedy or self.uses_beam_search)

    @property
    def used_seed(self) -> int | None:
        """The seed where it is used: None for greedy decoding and beam search."""
        return self.seed if self.is_sampled else None

    def with_seed(self) -> SamplingSettings:
        """These settings with a seed: a new one if there is none."""
        return self if self.seed is not None else self.model_copy(update={"seed": new_seed()})

    @property
    def uses_beam_search(self) -> bool:
        """Whether beam search is used."""
        return self.beams > 1


def new_seed() -> int:
    """A seed that nobody chose: 31 random bits, short enough to be typed again."""
    return secrets.randbits(31)
