from __future__ import annotations

import pytest
import torch
from cases import LENGTH, Case, recipe_of

from meristem.api import recipe_for
from meristem.errors import RecipeError
from meristem.learning.assemble import check, feeds_of, learner_of, objectives_of, view_of
from meristem.learning.combined import Combined
from meristem.recipe import resolve
from meristem.settings import find
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer


def test_weights_follow_from_the_seed_alone(tokenizer: Tokenizer) -> None:
    recipe, other = recipe_of(Case("mlm", "bert")), recipe_of(Case("mlm", "bert"), seed=4)
    torch.manual_seed(1)
    one = learner_of(recipe, tokenizer).model.state_dict()
    torch.manual_seed(2)
    again, differing = learner_of(recipe, tokenizer).model.state_dict(), learner_of(other, tokenizer).model.state_dict()
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["backbone.embed.tokens.weight"], differing["backbone.embed.tokens.weight"])


def test_several_objectives_of_one_source_are_combined(tokenizer: Tokenizer) -> None:
    mix = resolve(
        "test",
        {
            "model": {"family": "modern", "layers": 1, "width": 16, "heads": 2, "length": LENGTH},
            "mix": [{"objective": ["mlm", "nsp"], "name": "both"}, {"objective": "clm"}],
        },
    )
    made = objectives_of(mix, tokenizer)
    assert isinstance(made["both"], Combined)
    assert made["clm"].name == "clm"
    assert set(learner_of(mix, tokenizer).model.heads) == {"mlm", "nsp", "clm"}


def test_feeds_cut_batches_as_told(tokenizer: Tokenizer, store: Store) -> None:
    def feed(case: Case, **train: int) -> tuple[int, int]:
        recipe = recipe_of(case, **train)  # type: ignore[arg-type]
        (found,) = feeds_of(
            recipe, objectives_of(recipe, tokenizer), tokenizer, {"main": store}, split="train", seed=0
        ).values()
        return found.rows, found.micro

    assert feed(Case("mlm", "bert")) == (8, 8)
    assert feed(Case("mlm", "bert"), micro_tokens=3 * LENGTH + 5) == (8, 3)
    assert feed(Case("mlm", "bert"), batch_tokens=LENGTH, micro_tokens=9 * LENGTH) == (1, 1)
    assert feed(Case([{"name": "mlm", "exhaustive": True}], "bert")) == (1, 1)  # each sample is read in seven rows


def test_a_split_that_is_not_there_has_no_feed(tokenizer: Tokenizer, store: Store) -> None:
    recipe = recipe_of(Case("mlm", "bert"))
    assert (
        feeds_of(recipe, objectives_of(recipe, tokenizer), tokenizer, {"main": store}, split="validation", seed=0) == {}
    )


def test_lanes_without_memory_are_a_setting_of_families_that_could_remember() -> None:
    told = ["model.layers=1", "model.width=16", "model.heads=2", "model.length=8", "train.batch_tokens=64"]
    forgetful = recipe_for("transformer-xl-mini", [*told, "model.memory=0"])
    assert view_of(find("objectives", "clm"), forgetful).kind == "windows"
    lanes = recipe_for("transformer-xl-mini", [*told, "model.memory=0", "store.lanes=true"])
    assert view_of(find("objectives", "clm"), lanes).kind == "lanes"
    shuffled = recipe_for("transformer-xl-mini", [*told, "model.memory=4", "store.lanes=false"])
    assert view_of(find("objectives", "clm"), shuffled).kind == "windows"
    with pytest.raises(RecipeError, match=r"store\.lanes: gpt2 has no memory"):
        check(recipe_for("gpt2-mini", ["store.lanes=true"]))
