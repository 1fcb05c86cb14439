"""A policy tried on prompts it does not learn from: what it writes, what that is worth, how far it has gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from meristem.batch import Model
from meristem.metrics.variety import distinct
from meristem.randomness import generator
from meristem.reinforce.collecting import Collection, Floats, Judges
from meristem.reinforce.reward import Attempt
from meristem.task import Piece

if TYPE_CHECKING:
    from meristem.reinforce.policy import Policy

ROWS = 64
"""Texts that are read again at once."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Texts for some prompts, as many for each, and what is known of each text."""

    attempts: Sequence[Attempt]
    reward: Floats
    parts: dict[str, Floats]
    kl: Floats
    """Σ log π/π₀, nats."""
    entropy: Floats
    """Surprise per token, nats."""
    written: Floats
    """Tokens."""
    ended: Floats

    @property
    def texts(self) -> list[str]:
        """What was written."""
        return [attempt.text for attempt in self.attempts]

    def numbers(self) -> dict[str, float]:
        """Means over all texts."""
        each: dict[str, Any] = {"reward": self.reward, **{f"reward.{name}": part for name, part in self.parts.items()},
                                "kl": self.kl, "entropy": self.entropy, "written": self.written,
                                "ended": self.ended}  # fmt: skip
        return {**{name: float(values.mean()) for name, values in each.items()}, **distinct(self.texts)}


@torch.no_grad()
def tried(policy: Policy, model: Model, judges: Judges, pieces: Sequence[Piece], *, texts: int, seed: int) -> Tried:
    """`texts` for each prompt, drawn at numbers that follow from the seed and the prompt's place alone."""
    uniforms = [generator(seed, "tried", 0, n).random((texts, policy.laid.most)) for n in range(len(pieces))]
    seeds = [generator(seed, "tried-rewards", 0, n).integers(0, 1 << 62, texts).tolist() for n in range(len(pieces))]
    found = policy.collected(model, pieces, uniforms, seeds)
    verdict = judges.judge(found.attempts)
    surprise, distance = _distances(policy, model, found)
    sizes = np.array([len(one.tokens) for one in found.rolled], float)
    return Tried(
        attempts=found.attempts,
        reward=verdict.total,
        parts=dict(verdict.parts),
        kl=distance,
        entropy=-surprise / np.maximum(1, sizes),
        written=sizes,
        ended=np.array([one.ended for one in found.rolled], float),
    )


def _distances(policy: Policy, model: Model, found: Collection) -> tuple[Floats, Floats]:
    """Per text Σ log π and Σ log π/π₀, read in parts."""
    parts = []
    for first in range(0, len(found.rolled), ROWS):
        some = slice(first, first + ROWS)
        part = Collection(pieces=found.pieces[some], rolled=found.rolled[some], attempts=found.attempts[some])
        batch = policy.read(part, [0] * len(part.rolled)).to(model.device)
        parts.append(policy.distances(batch, [len(one.tokens) for one in part.rolled]))
    return np.concatenate([one for one, _ in parts]), np.concatenate([two for _, two in parts])
