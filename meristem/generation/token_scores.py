"""Token log-probabilities, and the batches of rows of similar length in which they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.dataset.length_buckets import length_batches
from meristem.generation.cancellation import check_cancelled, max_tokens_per_pass

MAX_TOKENS_PER_PASS = 8192
"""Tokens per forward pass, padding included."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TokenScores:
    """Scores of some tokens of a text."""

    logprobs: Floats
    """[tokens] natural logarithms."""
    is_top: NDArray[np.bool_]
    """[tokens] whether no other token was more probable."""

    @classmethod
    def zeros(cls, size: int) -> TokenScores:
        """Zero scores for `size` tokens."""
        return cls(np.zeros(size), np.zeros(size, bool))

    def from_index(self, first: int) -> TokenScores:
        """The scores from index `first` on."""
        return TokenScores(self.logprobs[first:], self.is_top[first:])

    def put(self, first: int, logprobs: Tensor, is_top: Tensor) -> None:
        """Store the scores of the tokens from `first` on."""
        self.logprobs[first : first + len(logprobs)] = logprobs.cpu().numpy()
        self.is_top[first : first + len(is_top)] = is_top.cpu().numpy()


def score_token_rows(
    head: VocabularyHead, states_ND: Tensor, target_ids_N: Tensor, sizes: Sequence[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Per row, log-probabilities of the target tokens and whether each is the top token; logits exist in chunks."""
    losses = head.compute_loss(states_ND, target_ids_N)
    assert losses.ranks_N is not None  # without gradients ranks are computed
    logprobs, is_top = torch.split(-losses.losses_N, list(sizes)), torch.split(losses.ranks_N == 0, list(sizes))
    return zip(logprobs, is_top, strict=True)


def forward_passes(
    sizes: Sequence[int], max_tokens: int = MAX_TOKENS_PER_PASS, **limits: int | None
) -> Iterator[list[int]]:
    """Indices of rows of similar length for each forward pass; cancellation is checked between two of them.

    `limits` are those of `length_batches`. Empty rows are left out.
    """
    rows = [index for index, size in enumerate(sizes) if size]
    batches = length_batches([sizes[index] for index in rows], max_tokens=max_tokens_per_pass(max_tokens), **limits)
    for number, batch in enumerate(batches):
        if number:
            check_cancelled()
        yield [rows[index] for index in batch]


def overlapping_windows(num_tokens: int, length: int, first_scored: int = 0) -> Iterator[tuple[int, int, int]]:
    """(start, stop, first scored token) of windows that overlap by half.

    Each token from `first_scored` on is scored in the first window that contains it.
    """
    start = 0
    while first_scored < num_tokens:
        stop = min(start + length, num_tokens)
        if stop > first_scored:
            yield start, stop, first_scored
            first_scored = stop
        start += length - length // 2
