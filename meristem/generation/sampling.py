"""Sampling: temperature, top-k, top-p, repetition penalty, n-gram blocking, and draws independent of the batch."""

# B rows, V vocabulary

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.config.settings import Settings
from meristem.utils.randomness import generator

MIN_TEMPERATURE = 1e-4
"""Below this only the most probable token is chosen, since the logits would overflow."""


class SamplingSettings(Settings):
    """Sampling and beam search settings."""

    renamed: ClassVar[dict[str, str]] = {
        "early": "early_stopping",
        "no_repeat": "no_repeat_ngram_size",
    }

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
    seed: int = 0
    """The same seed gives the same text."""

    @property
    def uses_beam_search(self) -> bool:
        """Whether beam search is used."""
        return self.beams > 1


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Logits divided by the temperature."""
    return logits if temperature == 1.0 else logits / max(temperature, MIN_TEMPERATURE)


def apply_top_k(logits: Tensor, k: int | None) -> Tensor:
    """The k highest logits of each row, the rest at −∞; ties with the lowest of them stay too."""
    if k is None or k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k).values[..., -1:], -torch.inf)


def apply_top_p(logits: Tensor, p: float | None) -> Tensor:
    """The fewest most probable tokens that together reach p, the rest at −∞."""
    if p is None or p >= 1:
        return logits
    probabilities, order = logits.softmax(-1).sort(descending=True, stable=True)
    dropped = probabilities.cumsum(-1) - probabilities >= p  # probability of all more probable tokens
    dropped[..., 0] = False  # the smallest positive p rounds to 0 here
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), -torch.inf)


def apply_repetition_penalty(logits: Tensor, texts: Sequence[Sequence[int]], penalty: float) -> Tensor:
    """Logits with the tokens already in a row's text penalised."""
    if penalty == 1.0:
        return logits
    logits = logits.clone()
    for row, text in enumerate(texts):
        seen_ids = torch.tensor(sorted(set(text)), dtype=torch.long, device=logits.device)
        seen_logits = logits[row, seen_ids]
        logits[row, seen_ids] = torch.where(seen_logits > 0, seen_logits / penalty, seen_logits * penalty)
    return logits


def ban_repeated_ngrams(logits: Tensor, texts: Sequence[Sequence[int]], ngram_size: int | None) -> Tensor:
    """Logits with tokens at −∞ that would repeat an n-gram of a row's text."""
    if ngram_size is None:
        return logits
    logits = logits.clone()
    for row, text in enumerate(texts):
        prefix = tuple(text[len(text) - ngram_size + 1 :])
        banned_ids = [
            text[start + ngram_size - 1]
            for start in range(len(text) - ngram_size + 1)
            if tuple(text[start : start + ngram_size - 1]) == prefix
        ]
        logits[row, banned_ids] = -torch.inf
    return logits


def ban_tokens(logits: Tensor, banned_ids: Sequence[int]) -> Tensor:
    """Logits with these tokens at −∞."""
    if not len(banned_ids):
        return logits
    return logits.index_fill(-1, torch.as_tensor(banned_ids, dtype=torch.long, device=logits.device), -torch.inf)


def filter_logits(logits: Tensor, settings: SamplingSettings) -> Tensor:
    """Temperature, then top-k, then top-p."""
    return apply_top_p(apply_top_k(apply_temperature(logits, settings.temperature), settings.top_k), settings.top_p)


def draw_uniforms(seed: int, rows: Sequence[int], position: int) -> Tensor:
    """[B] one number in [0, 1) for each row and position, independent of the other rows."""
    return torch.tensor([generator(seed, "write", row, position).random() for row in rows], dtype=torch.float64)


def check_no_nan(logits: Tensor) -> None:
    """Raise an error if a logit is NaN: argmax would choose it, and sampling is undefined."""
    if bool(logits.isnan().any()):
        raise MeristemError(
            "the model's logits are NaN, so it cannot generate: use an older checkpoint, or "
            "train again with a lower train.learning_rate"
        )


def sample_from_logits(logits: Tensor, uniform_B: Tensor) -> Tensor:
    """[B] tokens by inverse transform sampling: where the cumulative distribution passes the uniform numbers."""
    cumulative = logits.double().softmax(-1).cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    token_ids = torch.searchsorted(cumulative, uniform_B.to(logits.device)[:, None] * total, right=True)
    return torch.minimum(token_ids, torch.searchsorted(cumulative, total))[:, 0]  # a product rounded up stays inside


def sample_next_tokens(logits: Tensor, settings: SamplingSettings, rows: Sequence[int], position: int) -> Tensor:
    """[B] the next token of each row: the most probable, or one sampled for its row and position."""
    check_no_nan(logits)
    if settings.greedy:
        return logits.argmax(-1)
    return sample_from_logits(filter_logits(logits, settings), draw_uniforms(settings.seed, rows, position))
