"""Logits processors: banned tokens, minimum length, repetition penalty, n-gram blocking, temperature, top-k, top-p.

One ordered list, built from the sampling settings, serves sampling, greedy decoding, beam search and rollouts.
"""

# B sequences, V vocabulary, T tokens of the longest sequence

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from meristem.generation.sampling import MIN_TEMPERATURE
from meristem.generation.settings import SamplingSettings


class TokenSequence(Protocol):
    """The tokens that a processor may look at."""

    @property
    def all_ids(self) -> Sequence[int]:
        """Prompt and generated tokens."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The generated tokens."""


@dataclass(frozen=True)
class TokenHistory:
    """A prompt and the tokens generated after it."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int] = ()

    @property
    def all_ids(self) -> Sequence[int]:
        """Prompt and generated tokens."""
        return (*self.prompt_ids, *self.token_ids)


class LogitsProcessor(Protocol):
    """Changes logits before a token is chosen; beam search calls it with log-probabilities."""

    def __call__(self, logits_BV: Tensor, sequences: Sequence[TokenSequence], /) -> Tensor:
        """New logits [B, V], with the tokens that must not be chosen at −∞; the given ones are not changed."""


def build_processors(
    settings: SamplingSettings, banned_ids: Sequence[int], end_id: int | None, device: torch.device | str = "cpu"
) -> tuple[LogitsProcessor, ...]:
    """All processors of these settings, in order."""
    return (*build_constraints(settings, banned_ids, end_id, device), *build_filters(settings))


def build_constraints(
    settings: SamplingSettings, banned_ids: Sequence[int], end_id: int | None, device: torch.device | str = "cpu"
) -> list[LogitsProcessor]:
    """For every kind of decoding: banned tokens, minimum length, repetition penalty, n-gram blocking."""
    processors: list[LogitsProcessor] = []
    if len(banned_ids):
        processors.append(partial(ban_tokens, ids=torch.tensor(banned_ids, dtype=torch.long, device=device)))
    if settings.min_tokens and end_id is not None:
        processors.append(partial(ban_early_end, min_tokens=settings.min_tokens, end_id=end_id))
    if settings.repetition_penalty != 1.0:
        processors.append(partial(penalize_repetition, penalty=settings.repetition_penalty))
    if settings.no_repeat_ngram_size is not None:
        processors.append(partial(ban_repeated_ngrams, ngram_size=settings.no_repeat_ngram_size))
    return processors


def build_filters(settings: SamplingSettings) -> list[LogitsProcessor]:
    """Temperature, top-k and top-p, which only sampling uses: they do not change the most probable token."""
    processors: list[LogitsProcessor] = []
    if settings.is_sampled and settings.temperature != 1.0:
        processors.append(partial(apply_temperature, temperature=settings.temperature))
    if settings.is_sampled and settings.top_k is not None:
        processors.append(partial(keep_top_k, k=settings.top_k))
    if settings.is_sampled and settings.top_p is not None and settings.top_p < 1:
        processors.append(partial(keep_top_p, p=settings.top_p))
    return processors


def process_logits(logits: Tensor, sequences: Sequence[TokenSequence], processors: Sequence[LogitsProcessor]) -> Tensor:
    """The logits after all processors, in order."""
    for processor in processors:
        logits = processor(logits, sequences)
    return logits


def ban_tokens(logits: Tensor, sequences: Sequence[TokenSequence], *, ids: Tensor) -> Tensor:
    """Logits with these tokens at −∞."""
    return logits.index_fill(-1, ids, -torch.inf)


def ban_early_end(logits: Tensor, sequences: Sequence[TokenSequence], *, min_tokens: int, end_id: int) -> Tensor:
    """Logits with the end token at −∞ in sequences that are too short to end."""
    rows = [row for row, sequence in enumerate(sequences) if len(sequence.token_ids) < min_tokens]
    if not rows:
        return logits
    logits = logits.clone()
    logits[slice(None) if len(rows) == len(sequences) else rows, end_id] = -torch.inf
    return logits


def penalize_repetition(logits: Tensor, sequences: Sequence[TokenSequence], *, penalty: float) -> Tensor:
    """Logits of tokens that a sequence has already, divided by the penalty; multiplied below 0."""
    ids_BT = np.zeros((len(sequences), max(len(sequence.all_ids) for sequence in sequences)), np.int64)
    for row, sequence in enumerate(sequences):
        ids = sequence.all_ids
        ids_BT[row, : len(ids)], ids_BT[row, len(ids) :] = ids, ids[-1]  # a token twice is penalized once
    seen_BT = torch.from_numpy(ids_BT).to(logits.device)
    seen = logits.gather(1, seen_BT)
    return logits.scatter(1, seen_BT, torch.where(seen > 0, seen / penalty, seen * penalty))


def ban_repeated_ngrams(logits: Tensor, sequences: Sequence[TokenSequence], *, ngram_size: int) -> Tensor:
    """Logits with tokens at −∞ that would repeat an n-gram of the generated tokens."""
    logits = logits.clone()
    for row, sequence in enumerate(sequences):
        if len(sequence.token_ids) >= ngram_size:
            ids = np.asarray(sequence.token_ids, np.int64)
            ngrams = np.lib.stride_tricks.sliding_window_view(ids, ngram_size)
            repeated = (ngrams[:, :-1] == ids[len(ids) - ngram_size + 1 :]).all(1)
            logits[row, torch.from_numpy(ngrams[repeated, -1])] = -torch.inf
    return logits


def apply_temperature(logits: Tensor, sequences: Sequence[TokenSequence], *, temperature: float) -> Tensor:
    """Logits divided by the temperature."""
    return logits / max(temperature, MIN_TEMPERATURE)


def keep_top_k(logits: Tensor, sequences: Sequence[TokenSequence], *, k: int) -> Tensor:
    """The k highest logits of each row, the rest at −∞; ties with the lowest of them stay too."""
    if k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k).values[..., -1:], -torch.inf)


def keep_top_p(logits: Tensor, sequences: Sequence[TokenSequence], *, p: float) -> Tensor:
    """The fewest most probable tokens that together reach p, the rest at −∞."""
    probabilities, order = logits.softmax(-1).sort(descending=True, stable=True)
    dropped = probabilities.cumsum(-1) - probabilities >= p  # probability of all more probable tokens
    dropped[..., 0] = False  # the smallest positive p rounds to 0 here
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), -torch.inf)
