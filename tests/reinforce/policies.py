"""Small models that write, prompts, and rewards that any test can foresee."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from meristem.batch import Head, Model
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.learning.ragged import Pieces, Ragged
from meristem.reinforce.policy import Policy
from meristem.reinforce.reward import Attempt
from meristem.reinforce.settings import PolicySettings
from meristem.settings import find
from meristem.task import Sample
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train

TEXTS = ["The old gardener planted the apple tree. My sister sold seventeen boats and a small garden."] * 3
PROMPTS = ["The old", "My sister", "a small garden", "The apple tree planted", "sold", "boats and", "My", "the tree"]
FAMILIES = ("gpt2", "transformer", "rnn", "captioner")
WAYS = {"gpt2": "causal", "captioner": "image"}


@dataclass(frozen=True)
class Verdict:
    total: Any
    parts: dict[str, Any]


@dataclass
class Counting:
    """A reward that a function of the text alone decides."""

    value: Callable[[str], float]
    asked: list[Attempt] = field(default_factory=list)

    def judge(self, attempts: Sequence[Attempt]) -> Verdict:
        self.asked += attempts
        found = np.array([self.value(attempt.text) for attempt in attempts], float)
        return Verdict(found, {"counting": found})


def tokenizer() -> Tokenizer:
    return train(TokenizerSettings.model_validate({"kind": "wordpiece", "size": 200}), TEXTS)


def settings(family: str, **told: Any) -> PolicySettings:
    way, side = WAYS.get(family, "encoder_decoder"), 8 if family == "captioner" else None
    plain = {"way": way, "picture": side, "length": 24, "count": 3, "max_tokens": 6}
    return PolicySettings.model_validate({**plain, **told})


def learner_for(family: str, words: Tokenizer, reward: Any, *, double: bool = False, **told: Any) -> Learner:
    """A model with its policy, held near a copy of itself as it is now."""
    policy = Policy(settings(family, **told), words)
    model = _model(family, words, policy.heads)
    learner = Learner(model.double() if double else model, {"policy": policy})
    reference = _model(family, words, policy.heads)
    reference.load_state_dict(model.state_dict())
    policy.attach(reward, reference.double() if double else reference)
    return learner


def _model(family: str, words: Tokenizer, heads: Any) -> Model:
    torch.manual_seed(5)
    cls = find("models", family)
    sizes = {"layers": 1, "width": 16, "length": 24} | ({} if family == "rnn" else {"heads": 2})
    sizes |= {"picture": 8} if family == "captioner" else {}
    model = Model(cls(cls.Settings.model_validate(sizes), words.size), heads)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def samples(*, references: bool = False, pictures: bool = False) -> list[Sample]:
    gold = ("the apple tree",) if references else ()
    if pictures:
        names = [f"microworld:0:{n} builtin" for n in range(len(PROMPTS))]
        return [Sample(given={"picture": name, "columns": {}}, gold=gold, place=f"p:{name}") for name in names]
    return [Sample(given={"prompt": text, "columns": {}}, gold=gold, place=f"p:{n}") for n, text in enumerate(PROMPTS)]


def feed_for(learner: Learner, *, rows: int, micro: int | None = None, references: bool = False) -> Feed:
    policy: Any = learner.objectives["policy"]
    view = Pieces(policy.pieces(samples(references=references, pictures=policy.settings.way == "image")))
    return Ragged(view=view, objective=policy, seed=3, rows=rows, micro=micro or rows, fill=policy.fill)


__all__ = ["FAMILIES", "Counting", "Head", "feed_for", "learner_for", "samples", "settings", "tokenizer"]
