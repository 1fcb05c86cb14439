"""Replaced token detection: a small generator rewrites some tokens, and the model finds which (SPEC B5)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, State, View
from meristem.blocks.generator import Generator
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.metrics import ranking
from meristem.objectives.mlm import ChoiceSettings, chosen, units
from meristem.tokenizers.tokenizer import Tokenizer


class RTDSettings(ChoiceSettings):
    """What replaced token detection can be told."""

    needs: ClassVar[Dependences] = {
        "detection_weight": (when("generator"),),
    }

    name: Literal["rtd"] = "rtd"
    """The objective's name."""
    weight: float = Field(1.0, gt=0)
    """This objective's share where losses are summed."""
    detection_weight: float = Field(50.0, gt=0)  # λ in Clark et al. §3.1
    """How much more the judgement of a token counts than the generator's guess of one."""
    generator: str = "1/4"
    """The generator's width as a fraction of the model's; none replaces by random tokens, without a generator."""

    @field_validator("generator")
    @classmethod
    def _fraction(cls, value: str) -> str:
        over, _, under = value.partition("/")
        if value != "none" and not (over == "1" and under.isdecimal() and int(under) > 0):
            raise ValueError("a generator is 1/2, 1/4, … of the model, or none")
        return value

    @property
    def divide(self) -> int | None:
        """By what the model's width is divided; nothing without a generator."""
        return None if self.generator == "none" else int(self.generator.removeprefix("1/"))


class RTD(Objective):
    """p(replaced | every token), the replaced ones drawn from a generator that is trained to guess what was there.

    As in the paper every token that exists is judged, special ones too, although these are never replaced.
    """

    Settings = RTDSettings
    name = "rtd"
    needs = frozenset({"bidirectional"})
    view = View("windows", (("frame", True),))

    def __init__(self, settings: RTDSettings, tokenizer: Tokenizer) -> None:
        self.settings = settings
        self.starts_word = tokenizer.starts_word
        self.ordinary = np.flatnonzero(~tokenizer.specials)
        self.mask = tokenizer.mask
        score = Head("token_score")
        if settings.divide is None:
            self.heads, self.weights = {"rtd": score}, {"rtd": settings.weight}
            return
        if self.mask is None:
            raise MeristemError(
                "objective rtd: this tokenizer has no mask token, which its generator reads; "
                "train one, or replace by random tokens (objective.generator=none)"
            )
        self.heads = {"generator": Head("generator", (("divide", settings.divide),)), "rtd": score}
        self.weights = {"generator": settings.weight, "rtd": settings.weight * settings.detection_weight}

    def prepare(self, row: Row, draw: Draws) -> Row:
        """Choose tokens and hide them all behind the mask, or behind random tokens where nobody guesses."""
        rng, tokens = draw("rtd"), row.inputs["tokens"].copy()
        groups = units(tokens, ~row.notes["special"], self.starts_word, self.settings.unit != "token")
        at = chosen(groups, self.settings, rng)
        values, every = tokens[at], {"at": np.arange(len(tokens))}
        if self.settings.divide is None:
            tokens[at] = self.ordinary[rng.integers(len(self.ordinary), size=len(at))]
            replaced = np.zeros(len(tokens), bool)
            replaced[at] = tokens[at] != values
            goals = {"rtd": {**every, "values": replaced}}
        else:
            tokens[at] = self.mask
            uniform = rng.random(len(at), dtype=np.float32)
            goals = {"rtd": every, "generator": {"at": at, "values": values, "uniform": uniform}}
        inputs = {**row.inputs, "tokens": tokens}
        return Row(inputs=inputs, goals={**row.goals, **goals}, notes=row.notes, sample=row.sample)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """The generator guesses and is judged, words are drawn from its guesses, and the model reads those."""
        if self.settings.divide is None:
            return super().encode(model, batch, state)
        generator, goal, tokens = model.heads["generator"], batch.goals["generator"], batch.inputs["tokens"]
        assert isinstance(generator, Generator)
        guessed = generator(**batch.inputs, wanted=goal["at"])
        judged = generator.words.judge(guessed.at(goal["at"]), goal["values"], uniform_N=goal["uniform"])
        assert judged.drawn_N is not None
        read = tokens.flatten().index_copy(0, goal["at"], judged.drawn_N).view_as(tokens)
        hidden: Hidden = model.backbone(state=state, **{**batch.inputs, "tokens": read})
        missed = torch.zeros_like(tokens, dtype=torch.bool).flatten()
        replaced = missed.index_copy(0, goal["at"], judged.drawn_N != goal["values"])
        hidden.extra = {"judged": judged, "replaced": replaced}
        return hidden

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Yes or no for every token, and the cross-entropy of the generator's guesses."""
        goal = batch.goals["rtd"]
        replaced = goal["values"] if self.settings.divide is None else hidden.extra["replaced"][goal["at"]]
        outcome = _detected(model.heads["rtd"](hidden.at(goal["at"])), replaced)
        outcome.state = hidden.state
        if self.settings.divide is not None:
            judged = hidden.extra["judged"]
            outcome.sums["generator"] = judged.total
            if judged.rank_N is not None:
                number = judged.total.new_tensor(float(len(judged.rank_N)))
                outcome.metrics["generator.top1"] = ((judged.rank_N < 1).sum().float(), number)
        return outcome


def _detected(scores: Tensor, replaced: Tensor) -> Outcome:
    """The summed cross-entropy of yes-or-no scores, and how well they tell the two apart."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    total = F.binary_cross_entropy_with_logits(scores, replaced.to(scores.dtype), reduction="sum")
    number = scores.new_tensor(float(len(scores)))
    metrics = {
        "rtd.accuracy": ((((scores > 0) == replaced) & ~scores.isnan()).sum().float(), number),
        "rtd.replaced": (replaced.sum().float(), number),
    }
    scored = {} if torch.is_grad_enabled() else {"rtd.auc": ranking.spread(scores, replaced)}
    return Outcome(sums={"rtd": total}, metrics=metrics, scored=scored)
