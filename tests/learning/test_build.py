from __future__ import annotations

import pytest
import torch
from cases import LENGTH, Case, recipe_of

from meristem.api import resolve_pretrain_recipe
from meristem.config.errors import RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.dataset.token_dataset import TokenDataset
from meristem.interfaces.objective import OBJECTIVES
from meristem.learning.build import build_feeds, build_learner, build_objectives, check_recipe, select_view
from meristem.learning.multi_objective import MultiObjective
from meristem.tokenizers.tokenizer import Tokenizer


def test_weights_follow_from_the_seed_alone(tokenizer: Tokenizer) -> None:
    recipe, other = recipe_of(Case("mlm", "bert")), recipe_of(Case("mlm", "bert"), seed=4)
    torch.manual_seed(1)
    state_dict = build_learner(recipe, tokenizer).model.state_dict()
    torch.manual_seed(2)
    weights, differing = (
        build_learner(recipe, tokenizer).model.state_dict(),
        build_learner(other, tokenizer).model.state_dict(),
    )
    assert all(torch.equal(state_dict[name], weights[name]) for name in state_dict)
    assert not torch.equal(state_dict["backbone.embed.tokens.weight"], differing["backbone.embed.tokens.weight"])


def test_several_objectives_of_one_source_are_combined(tokenizer: Tokenizer) -> None:
    mix = resolve_recipe(
        "test",
        {
            "model": {"family": "modern", "layers": 1, "hidden_size": 16, "heads": 2, "max_length": LENGTH},
            "mix": [{"objective": ["mlm", "nsp"], "name": "both"}, {"objective": "clm"}],
        },
    )
    objectives = build_objectives(mix, tokenizer)
    assert isinstance(objectives["both"], MultiObjective)
    assert objectives["clm"].name == "clm"
    assert set(build_learner(mix, tokenizer).model.heads) == {"mlm", "nsp", "clm"}


def test_feeds_cut_batches_as_set(tokenizer: Tokenizer, store: TokenDataset) -> None:
    def feed(case: Case, **train: int) -> tuple[int, int]:
        recipe = recipe_of(case, **train)  # type: ignore[arg-type]
        (feed_built,) = build_feeds(
            recipe, build_objectives(recipe, tokenizer), tokenizer, {"main": store}, split="train", seed=0
        ).values()
        return feed_built.batch_size, feed_built.micro_batch_size

    assert feed(Case("mlm", "bert")) == (8, 8)
    assert feed(Case("mlm", "bert"), micro_batch_tokens=3 * LENGTH + 5) == (8, 3)
    assert feed(Case("mlm", "bert"), batch_tokens=LENGTH, micro_batch_tokens=9 * LENGTH) == (1, 1)
    assert feed(Case([{"name": "mlm", "exhaustive_masking": True}], "bert")) == (
        1,
        1,
    )  # each sample is read in seven rows


def test_a_split_that_is_not_there_has_no_feed(tokenizer: Tokenizer, store: TokenDataset) -> None:
    recipe = recipe_of(Case("mlm", "bert"))
    assert (
        build_feeds(recipe, build_objectives(recipe, tokenizer), tokenizer, {"main": store}, split="validation", seed=0)
        == {}
    )


def test_lanes_without_memory_need_a_family_with_memory() -> None:
    overrides = [
        "model.layers=1",
        "model.hidden_size=16",
        "model.heads=2",
        "model.max_length=8",
        "train.batch_tokens=64",
    ]
    forgetful = resolve_pretrain_recipe("transformer-xl-mini", [*overrides, "model.memory_length=0"])
    assert select_view(OBJECTIVES["clm"], forgetful).kind == "windows"
    contiguous = resolve_pretrain_recipe(
        "transformer-xl-mini", [*overrides, "model.memory_length=0", "dataset.contiguous_batches=true"]
    )
    assert select_view(OBJECTIVES["clm"], contiguous).kind == "contiguous"
    shuffled = resolve_pretrain_recipe(
        "transformer-xl-mini", [*overrides, "model.memory_length=4", "dataset.contiguous_batches=false"]
    )
    assert select_view(OBJECTIVES["clm"], shuffled).kind == "windows"
    with pytest.raises(RecipeError, match=r"dataset\.contiguous_batches: gpt2 has no segment memory"):
        check_recipe(resolve_pretrain_recipe("gpt2-mini", ["dataset.contiguous_batches=true"]))
