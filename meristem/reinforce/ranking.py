"""Best of N: several texts for each prompt, judged by rewards and put in order, without any training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from meristem.errors import MeristemError
from meristem.generation.written import Written
from meristem.reinforce.combined import Rewards, Verdict
from meristem.reinforce.reward import Attempt
from meristem.tables import Record, Tabular

Write = Callable[[int], Sequence[Sequence[Written]]]
"""So many texts for each prompt."""


@dataclass(frozen=True, kw_only=True)
class Ranked(Tabular):
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

    def records(self) -> list[Record]:
        """One row: the text, its value, and what each reward gave."""
        return [{"text": self.text, "value": self.value, **self.parts}]


def asked(prompts: Sequence[str | Path], references: Sequence[Sequence[str]], *, seed: int) -> list[Attempt]:
    """Prompts that texts are still to be written for, each with its references; none has any where none are given."""
    known = references or [()] * len(prompts)
    if len(known) != len(prompts) or any(isinstance(some, str) for some in known):
        raise MeristemError(
            f"references: expected a list of texts for each of the {len(prompts)} prompts, got {len(known)} of "
            f"{', '.join(sorted({type(some).__name__ for some in known}))}"
        )
    return [
        Attempt(
            prompt="" if isinstance(prompt, Path) else prompt,
            text="",
            references=tuple(some),
            seed=seed,
            place=f"prompt {number}",
            picture=str(prompt) if isinstance(prompt, Path) else "",
        )
        for number, (prompt, some) in enumerate(zip(prompts, known, strict=True), 1)
    ]


def best(write: Write, prompts: Sequence[Attempt], rewards: Rewards, *, of: int, keep: int = 1) -> list[list[Ranked]]:
    """For each prompt the best of so many texts, the first one the best; level ones in the order of their writing."""
    if not 1 <= keep <= of:
        raise MeristemError(f"best of {of}: between 1 and {of} texts can be kept, not {keep}")
    rewards.check(prompts)
    written = write(of)
    attempts = [
        replace(one, text=text.text, ended=text.finished != "length")
        for one, texts in zip(prompts, written, strict=True)
        for text in texts
    ]
    verdict = rewards.judge(attempts)
    flat = [text for texts in written for text in texts]
    orders = [np.argsort(-verdict.total[at : at + of], kind="stable")[:keep] + at for at in range(0, len(flat), of)]
    return [[_ranked(flat[at], verdict, at) for at in order.tolist()] for order in orders]


def _ranked(written: Written, verdict: Verdict, at: int) -> Ranked:
    parts = {name: float(values[at]) for name, values in verdict.parts.items()}
    return Ranked(written=written, value=float(verdict.total[at]), parts=parts, why=verdict.why[at])
