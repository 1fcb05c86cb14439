"""Small stand-ins for objectives that are still to come: the contract must carry them as it is.

Each goes when the real one replaces it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from toy_backbones import Reader, ToySettings

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row
from meristem.models.gpt2 import GPT2


class Toy(Objective):
    """What the toys share: no settings of their own."""

    Settings = ToySettings

    def __init__(self, settings: Any, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


# ---------------------------------------------------------------- span questions over several windows


class SpanQA(Toy):
    """A passage in overlapping windows; the answer's place competes with every place of every window of its sample."""

    name, needs = "span", frozenset({"bidirectional"})
    heads = {"span": Head("place")}
    weights = {"span": 1.0}
    rows_per_sample = 3

    def prepare(self, row: Row, draw: Draws) -> list[Row]:
        """Overlapping windows; the place to find is drawn, and stands in one or two of them."""
        tokens = row.inputs["tokens"]
        answer = int(draw("span").integers(2, len(tokens)))
        rows = []
        for start in range(0, len(tokens) - 4, 7)[: self.rows_per_sample]:
            window = tokens[start : start + 11]
            inside = start <= answer < start + len(window)
            goal = {"at": np.array([answer - start] if inside else [], np.int64)}
            rows.append(Row(inputs={"tokens": window}, goals={"span": goal}, notes={"start": start}, sample=row.sample))
        return rows

    def count(self, batch: Batch) -> dict[str, int]:
        """One question per sample, however many windows it has."""
        return {"span": len(batch.ids)}

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """log Σ over all places of a sample − log Σ over the places where its answer stands."""
        scores = model.heads["span"](hidden.last)[..., 0]
        if "present" in batch.inputs:
            scores = scores.masked_fill(~batch.inputs["present"], -1e9)
        right = (
            torch.full_like(scores, -1e9)
            .flatten()
            .index_copy(0, batch.goals["span"]["at"], scores.flatten()[batch.goals["span"]["at"]])
        )
        whole, gold = (_by_owner(s, batch.owner, len(batch.ids)) for s in (scores, right.view_as(scores)))
        return Outcome(sums={"span": (whole - gold).clamp(max=50).sum()}, state=hidden.state)


def _by_owner(scores: Tensor, owner: Tensor, samples: int) -> Tensor:
    """Rows of one sample made one: a log-sum over all their places."""
    return torch.stack([scores[owner == sample].flatten().logsumexp(0) for sample in range(samples)])


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


BACKBONES = {"span": Reader, "rloo": GPT2}
OBJECTIVES = {"span": SpanQA, "rloo": RLOO}
