"""Rewards for tests: a tiny grammar model trained once, and sentences that are not in its training text."""

from __future__ import annotations

import io
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from meristem import samples
from meristem.data.text_units import find_sentence_starts
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.reward_setup import build_rewards, rewards_cache
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.training import budget

TINY: dict[str, Any] = {
    "tokenizer.kind": "words",
    "tokenizer.vocab_size": 800,
    "model.layers": 1,
    "model.hidden_size": 48,
    "model.heads": 2,
    "model.max_length": 48,
    "train.steps": 40,
    "train.batch_tokens": 768,
    "train.learning_rate": 6e-3,
    "train.threads": 1,
    "train.evaluate_every": 1000,
    "train.evaluate_tokens": 512,
    "corpus.processes": 1,
    "corpus.validation": 0.1,
    "corpus.test": 0.1,
}
GRAMMAR: dict[str, Any] = {
    "name": "grammar",
    "corpus": "builtin:microworld-en?size=120",
    "judge_settings": TINY,
    "reference_sentences": 64,
}


def build_combined_reward(*specs: Any, folder: Path | None = None, output: io.StringIO | None = None) -> CombinedReward:
    """Rewards with all that they lack; judges are kept for the whole session."""
    console = Console(file=output or io.StringIO(), width=400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        rewards = build_rewards(parse_reward_specs(list(specs)), folder or rewards_cache(), console)
    assert isinstance(rewards, CombinedReward)
    return rewards


def sentences(number: int, seed: int = 9) -> list[str]:
    """Sentences of stories that no judge was trained on."""
    sentence_list = []
    for text in samples.documents(f"microworld-en?size={number}&seed={seed}"):
        sentence_list += [text[a:b].strip() for a, b in pairwise([*find_sentence_starts(text).tolist(), len(text)])]
    return sentence_list[:number]


def shuffled(text: str) -> str:
    """The same words in another order."""
    parts = text.split()
    random.Random(len(text)).shuffle(parts)
    return " ".join(parts)


def noise(text: str) -> str:
    """Letters and spaces, as many as the text has."""
    draw = random.Random(len(text))
    return "".join(draw.choice("abcdefghijklmnopqrstuvwxyz    ") for _ in text)


def attempts(*texts: str, **fields: Any) -> list[PromptCompletion]:
    """Texts for one prompt."""
    return [PromptCompletion(**{"prompt": "", **fields, "text": text}) for text in texts]


def values(rewards: CombinedReward, *texts: str, **fields: Any) -> list[float]:
    """What each text is worth."""
    return rewards.score(attempts(*texts, **fields)).total.tolist()  # type: ignore[no-any-return]


def echoed(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """A reward of one's own: how long each text is."""
    return [float(len(text)) for text in completions]
