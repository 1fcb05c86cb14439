"""Small stand-ins for objectives that are still to come: the contract must carry them as it is.

Each goes when the real one replaces it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from toy_backbones import WIDTH, BothWays, Discriminator, Reader, ToySettings, TwoStream

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, State, View
from meristem.models.gpt2 import GPT2


class Toy(Objective):
    """What the toys share: no settings of their own."""

    Settings = ToySettings

    def __init__(self, settings: Any, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


# ---------------------------------------------------------------- replaced token detection (ELECTRA)


class RTD(Toy):
    """Which tokens did a small generator replace? The generator learns too, and runs once."""

    name, needs = "rtd", frozenset({"bidirectional"})
    heads = {"generator": Head("generator"), "rtd": Head("score")}
    weights = {"generator": 1.0, "rtd": 5.0}

    def prepare(self, row: Row, draw: Draws) -> Row:
        """Mask, and bring the uniforms the generator's words are drawn with."""
        rng, tokens = draw("rtd"), row.inputs["tokens"]
        places = np.flatnonzero(~row.notes["special"])
        at = np.sort(rng.permutation(places)[: max(1, len(places) // 5)])
        shown = tokens.copy()
        shown[at] = self.tokenizer.mask
        goals = {"generator": {"at": at, "values": tokens[at], "uniform": rng.random(len(at))},
                 "rtd": {"at": np.arange(len(tokens)), "values": tokens}}
        return Row(inputs={"tokens": shown}, goals=goals, notes=row.notes, sample=row.sample)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Generator, draw, then the backbone on what was drawn."""
        generator, goal = model.heads["generator"], batch.goals["generator"]
        guessed = generator.body(**batch.inputs).at(goal["at"])
        with torch.no_grad():
            shares = generator.words(guessed).double().softmax(-1).cumsum(-1)
            drawn = torch.searchsorted(shares, goal["uniform"][:, None].to(shares.dtype))[:, 0].clamp(
                max=shares.shape[1] - 1
            )
        tokens = batch.inputs["tokens"].flatten().index_copy(0, goal["at"], drawn).view_as(batch.inputs["tokens"])
        hidden: Hidden = model.backbone(state=state, **{**batch.inputs, "tokens": tokens})
        hidden.extra = {"guessed": guessed, "tokens": tokens}
        return hidden

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The generator's words, and a yes or no for every token."""
        goal, every = batch.goals["generator"], batch.goals["rtd"]
        words = model.heads["generator"].words.judge(hidden.extra["guessed"], goal["values"]).total
        replaced = (hidden.extra["tokens"].flatten()[every["at"]] != every["values"]).to(hidden.last.dtype)
        score = model.heads["rtd"](hidden.at(every["at"]))[:, 0]
        found = F.binary_cross_entropy_with_logits(score, replaced, reduction="sum")
        return Outcome(sums={"generator": words, "rtd": found}, state=hidden.state)


# ---------------------------------------------------------------- permutation language modelling with memory (XLNet)


class PLM(Toy):
    """The last tokens of a random order are predicted from those before them in it."""

    name, needs, axis = "plm", frozenset({"two_stream", "memory"}), "slots"
    view = View("lanes")
    heads = {"plm": Head("vocabulary")}
    weights = {"plm": 1.0}

    def prepare(self, row: Row, draw: Draws) -> Row:
        """An order, and the slots of its last third."""
        tokens = row.inputs["tokens"][:-1]
        rank = draw("plm").permutation(len(tokens))
        slots = np.flatnonzero(rank >= len(tokens) - max(1, len(tokens) // 3))
        goal = {"at": np.arange(len(slots)), "values": tokens[slots]}
        inputs = {"tokens": tokens, "rank": rank, "slots": slots, "fresh": row.inputs["fresh"]}
        return Row(inputs=inputs, goals={"plm": goal}, sample=row.sample)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy at the slots; the state goes on."""
        goal = batch.goals["plm"]
        return Outcome(
            sums={"plm": model.heads["plm"].judge(hidden.at(goal["at"]), goal["values"]).total}, state=hidden.state
        )


# ---------------------------------------------------------------- both directions (ELMo)


class BiLM(Toy):
    """Forwards the next token, backwards the one before: two terms, each with its own places."""

    name, needs = "bilm", frozenset({"both_directions"})
    heads = {"bilm": Head("vocabulary")}
    weights = {"forward": 0.5, "backward": 0.5}

    def prepare(self, row: Row, draw: Draws) -> Row:
        """Nothing is hidden: neither net has read what it predicts."""
        tokens = row.inputs["tokens"]
        goals = {"forward": {"at": np.arange(len(tokens) - 1), "values": tokens[1:]},
                 "backward": {"at": np.arange(2, len(tokens)), "values": tokens[1:-1]}}
        return Row(inputs={"tokens": tokens}, goals=goals, notes=row.notes, sample=row.sample)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Each half judged on its own."""
        sums = {}
        for term, half in (("forward", slice(0, WIDTH)), ("backward", slice(WIDTH, None))):
            goal = batch.goals[term]
            sums[term] = model.heads["bilm"].judge(hidden.at(goal["at"])[:, half], goal["values"]).total
        return Outcome(sums=sums)


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


BACKBONES = {"rtd": Discriminator, "plm": TwoStream, "bilm": BothWays, "span": Reader, "rloo": GPT2}
OBJECTIVES = {"rtd": RTD, "plm": PLM, "bilm": BiLM, "span": SpanQA, "rloo": RLOO}
