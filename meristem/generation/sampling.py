"""Sampling: the settings, uniform random numbers that do not depend on the batch, and inverse transform sampling."""

# B rows, V vocabulary

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from meristem.blocks.multinomial import sample_multinomial
from meristem.config.errors import MeristemError
from meristem.config.settings import Settings
from meristem.utils.randomness import generator

MIN_TEMPERATURE = 1e-4
"""Below this only the most probable token is chosen, since the logits would overflow."""
Uniforms = Callable[[int], float]
"""Position of a token in its text → the number in [0, 1) that it is sampled with."""


class SamplingSettings(Settings):
    """Sampling and beam search settings."""

    renamed: ClassVar[dict[str, str]] = {"early": "early_stopping", "no_repeat": "no_repeat_ngram_size"}

    temperature: float = Field(1.0, gt=0)
    """Below 1 the distribution becomes sharper, above 1 flatter."""
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


def seeded_uniforms(seed: int, prompt_index: int = 0, copy_index: int = 0) -> Uniforms:
    """The numbers that one text of a call is sampled with: independent of the other prompts and texts of the call."""

    def uniform(position: int) -> float:
        return float(generator(seed, "write", copy_index, position, prompt_index).random())

    return uniform


def most_probable(logits_BV: Tensor) -> Tensor:
    """[B] the token with the highest logit of each row; the first of equal ones."""
    if logits_BV.is_cpu:  # numpy takes a tenth of torch's time for 16 × 8,192 logits
        return torch.from_numpy(logits_BV.numpy().argmax(-1))
    return logits_BV.argmax(-1)


def check_no_nan(logits: Tensor) -> None:
    """Raise an error if a logit is NaN: argmax would choose it, and sampling is undefined."""
    if bool(logits.isnan().any()):
        raise MeristemError(
            "the model's logits are NaN, so it cannot generate: use an older checkpoint, or "
            "train again with a lower train.learning_rate"
        )


def sample_tokens(logits_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """(tokens [B] by inverse transform sampling at the uniform numbers, unnormalized probabilities [B, V])."""
    weights_BV = (logits_BV - logits_BV.amax(1, keepdim=True)).exp_()
    return sample_multinomial(weights_BV.t(), uniform_B.to(logits_BV.device)), weights_BV
