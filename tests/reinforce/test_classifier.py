"""Classifier reward: the probability of a label under a fine-tuned run, or its regression output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from example_rewards import attempts, build_combined_reward, values
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.api import load
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.tokenizers.train import train_tokenizer

LINES = [f"Ada walked from the old harbour to garden {n}, and it rained." for n in range(40)]
MODEL = {"family": "bert", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 48}
LABELS = {"labels": ("bad", "good", "so-so"), "problem_type": "single"}


def classified(out: Path, **task: Any) -> Path:
    """A run as fine-tuning leaves it, with weights that make answers differ."""
    recipe_sections: dict[str, Any] = {"model": MODEL, "tokenizer": {"kind": "wordpiece", "vocab_size": 400}}
    if task:
        recipe_sections |= {
            "task": {"backbone_mode": "bidirectional", "max_length": 48, **task},
            "data": {"train": "none.tsv"},
        }
    else:
        recipe_sections["objective"] = "mlm"
    recipe = resolve_recipe("run", recipe_sections)
    words = train_tokenizer(recipe.tokenizer, LINES)
    learner = build_learner(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    return write_run(out, recipe, words, {key: value.detach() for key, value in state.items()}, {}).path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classified(tmp_path_factory.mktemp("runs") / "labels", name="classification", **LABELS)


@pytest.fixture(scope="module")
def rewards(run: Path) -> CombinedReward:
    return build_combined_reward({"name": "classifier", "run": str(run), "label": "good"})


def test_the_value_is_what_predicting_says(run: Path, rewards: CombinedReward) -> None:
    texts = [*LINES[:20], "Ada", " ".join(LINES)]  # longer than the model as well
    ranked = load(run).predict(texts, top=3)
    expected = [
        next(prediction["score"] for prediction in predictions if prediction["label"] == "good")
        for predictions in ranked
    ]
    scores = values(rewards, *texts)
    assert scores == pytest.approx(expected, abs=1e-5) and len({round(value, 4) for value in scores}) > 10


def test_why_has_the_other_labels(rewards: CombinedReward) -> None:
    details = rewards.score(attempts("the old harbour")).why[0]["classifier"]
    assert next(iter(details)) == "good" and set(details) == {"good", "bad", "so-so"}
    assert sum(float(value) for value in details.values()) == pytest.approx(1.0)


def test_the_prompt_may_be_read_too(run: Path, rewards: CombinedReward) -> None:
    prompted = build_combined_reward({"name": "classifier", "run": str(run), "label": "good", "include_prompt": True})
    assert values(rewards, "harbour", prompt="Ada walked ") == values(rewards, "harbour")
    assert values(prompted, "harbour", prompt="Ada walked ") == pytest.approx(values(rewards, "Ada walked harbour"))


def test_a_number_is_the_reward_itself(tmp_path: Path) -> None:
    run = classified(tmp_path / "numbers", name="classification", problem_type="regression", target_range=(1.0, 5.0))
    scores = values(build_combined_reward({"name": "classifier", "run": str(run)}), *LINES[:4])
    assert len(set(scores)) > 1 and np.isfinite(scores).all()
    with pytest.raises(MeristemError, match="is a regression run without labels; leave label=good out"):
        build_combined_reward({"name": "classifier", "run": str(run), "label": "good"})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(), max_size=4))
def test_a_probability_for_any_text(rewards: CombinedReward, texts: list[str]) -> None:
    assert all(0 <= value <= 1 for value in values(rewards, *texts))


@pytest.mark.parametrize("text", ["", "x" * 100_000, "\ud800", "老园丁 🐟"])
def test_odd_texts(rewards: CombinedReward, text: str) -> None:
    assert 0 <= values(rewards, text)[0] <= 1


# ------------------------------------------------------------ what is refused


def test_a_label_that_the_run_does_not_have(run: Path) -> None:
    with pytest.raises(MeristemError, match="has no label 'god', did you mean good"):
        build_combined_reward({"name": "classifier", "run": str(run), "label": "god"})
    with pytest.raises(MeristemError, match=r"choose a label of .*: label=bad or good or so-so"):
        build_combined_reward({"name": "classifier", "run": str(run)})


def test_a_run_that_classifies_nothing(tmp_path: Path) -> None:
    run = classified(tmp_path / "plain")
    with pytest.raises(
        MeristemError, match=r"is not a classifier \(it was trained for mlm\): train one with meristem finetune"
    ):
        build_combined_reward({"name": "classifier", "run": str(run), "label": "good"})


def test_a_run_is_needed(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"reward\.0\.run: Field required"):
        parse_reward_specs("classifier")
    with pytest.raises(MeristemError, match="no such run"):
        build_combined_reward({"name": "classifier", "run": str(tmp_path / "absent"), "label": "good"})
