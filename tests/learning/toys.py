"""Small stand-ins for objectives that are still to come: the contract must carry them as it is.

Each goes when the real one replaces it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row
from meristem.models.gpt2 import GPT2
from meristem.settings import Settings


class ToySettings(Settings):
    """Nothing to choose."""


class Toy(Objective):
    """What the toys share: no settings of their own."""

    Settings = ToySettings

    def __init__(self, settings: Any, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


# ---------------------------------------------------------------- reward (REINFORCE, leave one out)


class RLOO(Toy):
    """Several continuations of a prompt; each is praised by how much it beats the others. Even tokens are good."""

    name, needs = "rloo", frozenset({"causal"})
    heads = {"clm": Head("vocabulary")}
    weights = {"rloo": 1.0}
    rows_per_sample = 4
    prompt, answer = 5, 4

    def prepare(self, row: Row, draw: Draws) -> list[Row]:
        """Room for the rollouts, and the uniforms they are drawn with."""
        rng, prompt = draw("rloo"), row.inputs["tokens"][: self.prompt]
        tokens = np.concatenate([prompt, np.zeros(self.answer, np.int64)])
        at = np.arange(len(prompt) - 1, len(prompt) + self.answer - 1)
        return [
            Row(
                inputs={"tokens": tokens},
                goals={"rloo": {"at": at, "uniform": rng.random(self.answer)}},
                sample=row.sample,
            )
            for _ in range(self.rows_per_sample)
        ]

    def explore(self, model: Model, batch: Batch) -> Batch:
        """Write the continuations, reward them, and subtract what the sample's others got."""
        tokens, goal = batch.inputs["tokens"].clone(), batch.goals["rloo"]
        rows, number = len(tokens), self.answer
        uniform = goal["uniform"].view(rows, number)
        for step in range(number):
            at = tokens.shape[1] - number + step
            logits = model.heads["clm"](model.backbone(tokens=tokens[:, :at]).last[:, -1])
            shares = logits.double().softmax(-1).cumsum(-1)
            drawn = torch.searchsorted(shares, uniform[:, step, None].to(shares.dtype).contiguous())[:, 0]
            tokens[:, at] = drawn.clamp(max=shares.shape[1] - 1)
        reward = (tokens[:, -number:] % 2 == 0).to(goal["uniform"].dtype).sum(1)
        same = (batch.owner[:, None] == batch.owner[None]).to(reward.dtype)
        others = (same @ reward - reward) / (same.sum(1) - 1)
        made = {
            **goal,
            "values": tokens[:, -number:].flatten(),
            "advantage": (reward - others).repeat_interleave(number),
            "reward": reward,
        }
        return replace(batch, inputs={**batch.inputs, "tokens": tokens}, goals={"rloo": made})

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """−advantage · log p of what was written."""
        goal = batch.goals["rloo"]
        chosen = model.heads["clm"](hidden.at(goal["at"])).log_softmax(-1).gather(1, goal["values"][:, None])[:, 0]
        reward = goal["reward"].float()
        return Outcome(sums={"rloo": -(goal["advantage"].to(chosen.dtype) * chosen).sum()},
                       metrics={"reward": (reward.sum(), reward.new_tensor(float(len(reward))))})


BACKBONES = {"rloo": GPT2}
OBJECTIVES = {"rloo": RLOO}
