"""Settings that a run would ignore are refused where they are given, and only there."""

from __future__ import annotations

import pytest

from meristem.errors import RecipeError
from meristem.recipe import shipped, shipped_tasks
from meristem.resolving import recipe_for, task_recipe


@pytest.mark.parametrize(("given", "said"), [
    ("train.batch_samples=8", "train.batch_tokens"), ("train.batch_size=8", "use train.batch_tokens in pretraining"),
    ("train.matrix_rate=0.1", "train.optimizer=muon"), ("train.decay=0.3", "train.schedule=constant_then_decay"),
])  # fmt: skip
def test_pretraining(given: str, said: str) -> None:
    with pytest.raises(RecipeError, match=rf"{given.partition('=')[0]}: .*{said}"):
        recipe_for("gpt-mini", ["train.optimizer=adamw", given])


@pytest.mark.parametrize(("given", "said"), [
    ("train.batch_tokens=800", "train.batch_samples"), ("train.evaluate_tokens=8", "all validation samples"),
    ("corpus.source=a.txt", "data.train=FILE"), ("store.shard_tokens=7", "data.train=FILE"),
])  # fmt: skip
def test_tasks(given: str, said: str) -> None:
    with pytest.raises(RecipeError, match=rf"{given.partition('=')[0]}: .*{said}"):
        task_recipe("classification", [given])


def test_what_counts_is_taken_and_recipes_are_silent() -> None:
    assert recipe_for("gpt-mini", ["train.batch_tokens=512"]).train.batch_tokens == 512
    assert recipe_for("bert-mini", ["train.optimizer=muon", "train.momentum=0.9"]).train.momentum == 0.9
    assert task_recipe("classification", {"train.batch_samples": 4, "tokenizer.size": 300}).train.batch_samples == 4
    for name in shipped():
        recipe_for(name)
    for name in shipped_tasks():
        task_recipe(name)
