"""Log-probabilities of the tokens of a text, and batches of rows of like length in which they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.blocks.vocabulary import VocabularyHead
from meristem.generation.watching import go_on, tokens_per_pass

TOKENS = 8192
"""Read at once, padding counted."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TokenScores:
    """What a model says of some tokens of a text."""

    logprobs: Floats
    """[tokens] natural logarithms."""
    best: NDArray[np.bool_]
    """[tokens] whether no other token was likelier."""

    @classmethod
    def zeros(cls, size: int) -> TokenScores:
        """Room for so many tokens."""
        return cls(np.zeros(size), np.zeros(size, bool))

    def since(self, first: int) -> TokenScores:
        """Those of the tokens from `first` on."""
        return TokenScores(self.logprobs[first:], self.best[first:])

    def put(self, first: int, logprobs: Tensor, best: Tensor) -> None:
        """What was computed of the tokens from `first` on."""
        self.logprobs[first : first + len(logprobs)] = logprobs.cpu().numpy()
        self.best[first : first + len(best)] = best.cpu().numpy()


def token_scores(
    head: VocabularyHead, states_ND: Tensor, wanted_N: Tensor, sizes: Sequence[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities of these tokens and whether each is the best, row by row; logits exist only in chunks."""
    found = head.judge(states_ND, wanted_N)
    assert found.rank_N is not None  # there is no gradient here
    logprobs, best = torch.split(-found.each_N, list(sizes)), torch.split(found.rank_N == 0, list(sizes))
    return zip(logprobs, best, strict=True)


def length_batches(sizes: Sequence[int], tokens: int = TOKENS) -> Iterator[list[int]]:
    """Places of rows of like size, as many together as hold so many tokens with padding; empty rows are left out."""
    batch: list[int] = []
    tokens = tokens_per_pass(tokens)
    for place in sorted((place for place, size in enumerate(sizes) if size), key=lambda place: sizes[place]):
        if batch and (len(batch) + 1) * sizes[place] > tokens:
            yield batch
            go_on()
            batch = []
        batch.append(place)
    if batch:
        yield batch
