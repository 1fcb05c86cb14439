"""Texts written for prompts, judged, and laid out as rows that a model can read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from meristem.batch import Model
from meristem.generation.laid import Laid
from meristem.generation.rolling import Rolled, Uniforms, Way, roll, spelled
from meristem.reinforce.reward import Attempt
from meristem.task import Piece
from meristem.tokenizers.tokenizer import Tokenizer

Floats = NDArray[np.float64]
ROWS = 256
"""Texts written side by side."""


class Verdict(Protocol):
    """What rewards think of attempts."""

    @property
    def total(self) -> Floats:
        """Weighed and summed."""

    @property
    def parts(self) -> Mapping[str, Floats]:
        """Each reward by itself, as it came."""

    @property
    def observations(self) -> Sequence[Mapping[str, Any]]:
        """For each attempt what rewards with a history want to remember of it."""


class Judges(Protocol):
    """Rewards, weighed."""

    def judge(self, attempts: Sequence[Attempt]) -> Verdict:
        """One judgement for each attempt."""

    def with_history(self, history: Any) -> Judges:
        """The same rewards as they judge after a history."""

    def remember(self, history: Any, observations: Sequence[Any]) -> Any:
        """The history after one step more."""


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Texts for some prompts, as many for each, in the order of the prompts."""

    pieces: Sequence[Piece]
    """The prompt of each text."""
    rolled: Sequence[Rolled]
    attempts: Sequence[Attempt]


def collect(
    model: Model,
    tokenizer: Tokenizer,
    laid: Laid,
    way: Way,
    pieces: Sequence[Piece],
    uniforms: Sequence[Uniforms],
    seeds: Sequence[Sequence[int]],
) -> Collection:
    """Texts of each piece, one for every row of its uniforms; its attempt is in its parts."""
    starts = [laid.start(piece) for piece in pieces]
    rolled: list[list[Rolled]] = []
    step = max(1, ROWS // max(map(len, uniforms)))
    for first in range(0, len(pieces), step):
        rolled += roll(model, starts[first : first + step], uniforms[first : first + step], way)
    attempts = [
        replace(piece.parts["attempt"], text=spelled(tokenizer, start.prompt, one.words), ended=one.ended, seed=seed)
        for piece, start, some, own in zip(pieces, starts, rolled, seeds, strict=True)
        for one, seed in zip(some, own, strict=True)
    ]
    owners = [piece for piece, some in zip(pieces, rolled, strict=True) for _ in some]
    return Collection(pieces=owners, rolled=[one for some in rolled for one in some], attempts=attempts)


def pairs_apart(rolled: Sequence[Rolled]) -> float:
    """Different pairs of tokens as a share of all of them, over all texts (distinct-2)."""
    pairs: list[tuple[Any, Any]] = []
    for one in rolled:
        words = one.words.tolist()
        pairs += pairwise(words)
    return len(set(pairs)) / max(1, len(pairs))
