"""Bidirectional language modelling: one net reads forwards, one backwards, and each predicts what comes (SPEC B7)."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, View
from meristem.blocks.sampled import sampled
from meristem.blocks.vocabulary import VocabularyHead
from meristem.objectives import _words
from meristem.tokenizers.tokenizer import Tokenizer

TERMS = ("forward", "backward")


class BiLMSettings(_words.WordsSettings):
    """What a bidirectional language model can be told."""

    name: Literal["bilm"] = "bilm"
    """The objective's name."""
    rivals: int = Field(0, ge=0)
    """Words that training judges against, drawn for each row by rank; 0 means all, as in every evaluation."""

    @model_validator(mode="after")
    def _exact(self) -> Self:
        if self.rivals and (self.label_smoothing or self.l1_outputs):
            raise ValueError("rivals: label_smoothing and l1_outputs need every word's logit; set rivals to 0")
        return self


def by_rank(rng: Generator, number: int, vocabulary: int) -> NDArray[np.int64]:
    """Words with replacement, word w with p(w) = log((w + 2) / (w + 1)) / log(V + 1): ids are ranks, or nearly so."""
    drawn: NDArray[np.int64] = np.exp(rng.random(number) * np.log(vocabulary + 1)).astype(np.int64) - 1
    return drawn.clip(max=vocabulary - 1)


class BiLM(Objective):
    """½ Σ log p(x_t | x_<t) + ½ Σ log p(x_t | x_>t), embedding and softmax shared."""

    Settings = BiLMSettings
    name = "bilm"
    needs = frozenset({"both_directions"})
    view = View("windows", (("frame", True),))
    heads = {"bilm": Head("vocabulary")}

    def __init__(self, settings: BiLMSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.size = settings, tokenizer.size
        # where a row was cut says nothing of the text: its frame is read and never predicted
        self.edge = int(tokenizer.start is not None and tokenizer.end is not None)
        self.weights = dict.fromkeys(TERMS, settings.weight / 2)
        if settings.l1_states:
            self.weights["bilm.states"] = settings.l1_states

    def prepare(self, row: Row, draw: Draws) -> Row:
        """Nothing is hidden: neither direction has read what it predicts."""
        tokens, edge = row.inputs["tokens"], self.edge
        size = len(tokens)
        goals = {
            "forward": {"at": np.arange(size - 1 - edge), "values": tokens[1 : size - edge]},
            "backward": {"at": np.arange(1 + edge, size), "values": tokens[edge : size - 1]},
        }
        if self.settings.rivals:
            goals["forward"]["rivals"] = by_rank(draw("bilm"), self.settings.rivals, self.size)
        return Row(inputs=row.inputs, goals={**row.goals, **goals}, notes=row.notes, sample=row.sample)

    def count(self, batch: Batch) -> dict[str, int]:
        """Each direction predicts every word but those on its edge."""
        held = {"bilm.states": _words.positions(batch)} if self.settings.l1_states else {}
        return {**super().count(batch), **held}

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Each half of the states judged on its own."""
        outcome = Outcome(sums={})
        for term, states in zip(TERMS, hidden.last.chunk(2, -1), strict=True):
            self._judge(term, model, states, batch, outcome)
        if self.settings.l1_states:
            _words.hold_small("bilm.states", hidden.last, batch, outcome)
        return outcome

    def _judge(self, term: str, model: Model, states_BTD: Tensor, batch: Batch, outcome: Outcome) -> None:
        head, goal, settings = model.heads["bilm"], batch.goals[term], self.settings
        assert isinstance(head, VocabularyHead)
        if settings.rivals and model.training:
            drawn = batch.goals["forward"]["rivals"].view(-1, settings.rivals)
            outcome.sums[term] = sampled(head, states_BTD, goal["at"], goal["values"], drawn)
            return
        states_ND = states_BTD.reshape(-1, states_BTD.shape[-1]).index_select(0, goal["at"])
        judged = head.judge(states_ND, goal["values"], smoothing=settings.label_smoothing, l1=settings.l1_outputs)
        outcome.sums[term] = judged.total
        if judged.rank_N is not None:
            number = torch.tensor(float(len(goal["at"])), device=judged.total.device)
            outcome.metrics[f"{term}.top1"] = ((judged.rank_N < 1).sum().float(), number)
            outcome.metrics[f"{term}.top5"] = ((judged.rank_N < 5).sum().float(), number)
