"""Settings that would have no effect in a run are refused, and only those."""

from __future__ import annotations

import pytest

from meristem.config.errors import RecipeError
from meristem.config.recipe import builtin_recipes, builtin_task_recipes
from meristem.recipe_resolution import resolve_pretrain_recipe, resolve_task_recipe


@pytest.mark.parametrize(("override", "message"), [
    ("train.batch_samples=8", "train.batch_tokens"), ("train.batch_size=8", "use train.batch_tokens in pretraining"),
    ("train.muon_learning_rate=0.1", "train.optimizer=muon"), ("train.decay_fraction=0.3",
     "train.schedule=constant_then_decay"),
])  # fmt: skip
def test_pretraining(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=rf"{override.partition('=')[0]}: .*{message}"):
        resolve_pretrain_recipe("gpt-mini", ["train.optimizer=adamw", override])


@pytest.mark.parametrize(("override", "message"), [
    ("train.batch_tokens=800", "train.batch_samples"), ("train.evaluate_tokens=8", "all validation samples"),
    ("corpus.source=a.txt", "data.train=FILE"), ("dataset.shard_tokens=7", "data.train=FILE"),
])  # fmt: skip
def test_tasks(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=rf"{override.partition('=')[0]}: .*{message}"):
        resolve_task_recipe("classification", [override])


def test_what_counts_is_taken_and_recipes_are_silent() -> None:
    assert resolve_pretrain_recipe("gpt-mini", ["train.batch_tokens=512"]).train.batch_tokens == 512
    assert (
        resolve_pretrain_recipe("bert-mini", ["train.optimizer=muon", "train.muon_momentum=0.9"]).train.muon_momentum
        == 0.9
    )
    assert (
        resolve_task_recipe(
            "classification", {"train.batch_samples": 4, "tokenizer.vocab_size": 300}
        ).train.batch_samples
        == 4
    )
    for name in builtin_recipes():
        resolve_pretrain_recipe(name)
    for name in builtin_task_recipes():
        resolve_task_recipe(name)
