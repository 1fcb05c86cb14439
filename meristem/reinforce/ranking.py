"""Best of N: several texts for each prompt, judged by rewards and put in order, without any training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meristem.generation.written import Written
from meristem.reinforce.combined import Rewards
from meristem.reinforce.reward import Attempt
from meristem.settings import MeristemError

Write = Callable[[int], Sequence[Sequence[Written]]]
"""So many texts for each prompt."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A text that was written, and what it is worth."""

    written: Written
    value: float
    """Σ weight · value of the rewards."""
    parts: Mapping[str, float]
    """Each reward's own value."""
    why: Mapping[str, Mapping[str, float | str]]

    @property
    def text(self) -> str:
        """What was written."""
        return self.written.text


def best(write: Write, asked: Sequence[Attempt], rewards: Rewards, *, of: int, keep: int = 1) -> list[list[Ranked]]:
    """For each prompt the best of so many texts, the first one the best; level ones in the order of their writing."""
    if not 1 <= keep <= of:
        raise MeristemError(f"best of {of}: between 1 and {of} texts can be kept, not {keep}")
    rewards.check(asked)
    written = write(of)
    attempts = [
        Attempt(
            prompt=one.prompt,
            text=text.text,
            references=one.references,
            columns=one.columns,
            ended=text.finished != "length",
            seed=one.seed,
            place=one.place,
        )
        for one, texts in zip(asked, written, strict=True)
        for text in texts
    ]
    verdict = rewards.judge(attempts)
    flat = [text for texts in written for text in texts]
    out = []
    for first in range(0, len(flat), of):
        order = np.argsort(-verdict.total[first : first + of], kind="stable")[:keep] + first
        out.append(
            [
                Ranked(
                    written=flat[at],
                    value=float(verdict.total[at]),
                    parts={name: float(values[at]) for name, values in verdict.parts.items()},
                    why=verdict.why[at],
                )
                for at in order.tolist()
            ]
        )
    return out
