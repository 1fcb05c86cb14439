"""Small generating models, prompts, and rewards with known values, for tests of the policy objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from meristem.dataset.feed import Feed
from meristem.dataset.length_buckets import LengthBucketedFeed, PieceView
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.interfaces.sample import Sample
from meristem.learning.learner import Learner
from meristem.reinforce.objectives.policy import PolicyObjective
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.settings import PolicySettings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

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
    scored: list[PromptCompletion] = field(default_factory=list)

    def score(self, completions: Sequence[PromptCompletion]) -> Verdict:
        self.scored += completions
        scores = np.array([self.value(completion.text) for completion in completions], float)
        return Verdict(scores, {"counting": scores})


def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerSettings.model_validate({"kind": "wordpiece", "vocab_size": 200}), TEXTS)


def settings(family: str, **policy_overrides: Any) -> PolicySettings:
    generation_mode, side = WAYS.get(family, "encoder_decoder"), 8 if family == "captioner" else None
    plain = {
        "generation_mode": generation_mode,
        "image_size": side,
        "max_length": 24,
        "num_generations": 3,
        "max_new_tokens": 6,
    }
    return PolicySettings.model_validate({**plain, **policy_overrides})


def learner_for(
    family: str, words: Tokenizer, reward: Any, *, double: bool = False, **policy_overrides: Any
) -> Learner:
    """A model with its policy, held near a copy of itself as it is now."""
    policy = PolicyObjective(settings(family, **policy_overrides), words)
    model = _model(family, words, policy.heads)
    learner = Learner(model.double() if double else model, {"policy": policy})
    reference = _model(family, words, policy.heads)
    reference.load_state_dict(model.state_dict())
    policy.attach(reward, reference.double() if double else reference)
    return learner


def _model(family: str, words: Tokenizer, heads: Any) -> Model:
    torch.manual_seed(5)
    cls = MODEL_FAMILIES[family]
    sizes = {"layers": 1, "hidden_size": 16, "max_length": 24} | ({} if family == "rnn" else {"heads": 2})
    sizes |= {"image_size": 8} if family == "captioner" else {}
    model = Model(cls(cls.Settings.model_validate(sizes), words.vocab_size), heads)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def samples(*, references: bool = False, pictures: bool = False) -> list[Sample]:
    gold = ("the apple tree",) if references else ()
    if pictures:
        names = [f"microworld:0:{n} builtin" for n in range(len(PROMPTS))]
        return [Sample(inputs={"picture": name, "columns": {}}, gold=gold, location=f"p:{name}") for name in names]
    return [
        Sample(inputs={"prompt": text, "columns": {}}, gold=gold, location=f"p:{n}") for n, text in enumerate(PROMPTS)
    ]


def feed_for(learner: Learner, *, rows: int, micro: int | None = None, references: bool = False) -> Feed:
    policy: Any = learner.objectives["policy"]
    view = PieceView(
        policy.encode_samples(samples(references=references, pictures=policy.settings.generation_mode == "image"))
    )
    return LengthBucketedFeed(
        view=view, objective=policy, seed=3, batch_size=rows, micro_batch_size=micro or rows, pad_values=policy.fill
    )


__all__ = ["FAMILIES", "Counting", "Head", "feed_for", "learner_for", "samples", "settings", "tokenizer"]
