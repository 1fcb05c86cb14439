"""Classifier: the probability that a fine-tuned run gives a label, or its number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judges import attempts, made, values

from meristem.api import load
from meristem.errors import MeristemError, RecipeError
from meristem.interop.importing import whole_state, write_run
from meristem.learning.assemble import learner_of
from meristem.recipe import resolve
from meristem.reinforce.combined import Rewards
from meristem.reinforce.named import settings_of
from meristem.tokenizers.train import train

LINES = [f"Ada walked from the old harbour to garden {n}, and it rained." for n in range(40)]
MODEL = {"family": "bert", "layers": 1, "width": 32, "heads": 2, "length": 48}
LABELS = {"labels": ("bad", "good", "so-so"), "problem": "single"}


def classified(out: Path, **task: Any) -> Path:
    """A run as fine-tuning leaves it, with weights that make answers differ."""
    told: dict[str, Any] = {"model": MODEL, "tokenizer": {"kind": "wordpiece", "size": 400}}
    if task:
        told |= {"task": {"way": "bidirectional", "length": 48, **task}, "data": {"train": "none.tsv"}}
    else:
        told["objective"] = "mlm"
    recipe = resolve("run", told)
    words = train(recipe.tokenizer, LINES)
    learner = learner_of(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = whole_state(learner.model, dict(learner.model.named_parameters()))
    return write_run(out, recipe, words, {key: value.detach() for key, value in state.items()}, {}).path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classified(tmp_path_factory.mktemp("runs") / "labels", name="classification", **LABELS)


@pytest.fixture(scope="module")
def rewards(run: Path) -> Rewards:
    return made({"name": "classifier", "run": str(run), "label": "good"})


def test_the_value_is_what_predicting_says(run: Path, rewards: Rewards) -> None:
    texts = [*LINES[:20], "Ada", " ".join(LINES)]  # longer than the model as well
    ranked = load(run).predict(texts, top=3)
    wanted = [next(one["score"] for one in some if one["label"] == "good") for some in ranked]
    found = values(rewards, *texts)
    assert found == pytest.approx(wanted, abs=1e-5) and len({round(value, 4) for value in found}) > 10


def test_why_has_the_other_labels(rewards: Rewards) -> None:
    why = rewards.judge(attempts("the old harbour")).why[0]["classifier"]
    assert next(iter(why)) == "good" and set(why) == {"good", "bad", "so-so"}
    assert sum(float(value) for value in why.values()) == pytest.approx(1.0)


def test_the_prompt_may_be_read_too(run: Path, rewards: Rewards) -> None:
    prompted = made({"name": "classifier", "run": str(run), "label": "good", "prompted": True})
    assert values(rewards, "harbour", prompt="Ada walked ") == values(rewards, "harbour")
    assert values(prompted, "harbour", prompt="Ada walked ") == pytest.approx(values(rewards, "Ada walked harbour"))


def test_a_number_is_the_reward_itself(tmp_path: Path) -> None:
    run = classified(tmp_path / "numbers", name="classification", problem="regression", range=(1.0, 5.0))
    found = values(made({"name": "classifier", "run": str(run)}), *LINES[:4])
    assert len(set(found)) > 1 and np.isfinite(found).all()
    with pytest.raises(MeristemError, match="gives a number, no labels; leave label=good out"):
        made({"name": "classifier", "run": str(run), "label": "good"})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(), max_size=4))
def test_a_probability_for_any_text(rewards: Rewards, texts: list[str]) -> None:
    assert all(0 <= value <= 1 for value in values(rewards, *texts))


@pytest.mark.parametrize("text", ["", "x" * 100_000, "\ud800", "老园丁 🐟"])
def test_odd_texts(rewards: Rewards, text: str) -> None:
    assert 0 <= values(rewards, text)[0] <= 1


# ------------------------------------------------------------ what is refused


def test_a_label_that_the_run_does_not_have(run: Path) -> None:
    with pytest.raises(MeristemError, match="has no label 'god', did you mean good"):
        made({"name": "classifier", "run": str(run), "label": "god"})
    with pytest.raises(MeristemError, match=r"which label of .* is wanted\? label=bad or good or so-so"):
        made({"name": "classifier", "run": str(run)})


def test_a_run_that_classifies_nothing(tmp_path: Path) -> None:
    run = classified(tmp_path / "plain")
    with pytest.raises(MeristemError, match=r"classifies nothing \(it was trained for mlm\): meristem finetune"):
        made({"name": "classifier", "run": str(run), "label": "good"})


def test_a_run_is_needed(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"reward\.0\.run: Field required"):
        settings_of("classifier")
    with pytest.raises(MeristemError, match="there is no such run"):
        made({"name": "classifier", "run": str(tmp_path / "absent"), "label": "good"})
