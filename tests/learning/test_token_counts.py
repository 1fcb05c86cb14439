"""Tokens asked for are tokens counted, for every objective, family and shipped recipe."""

from __future__ import annotations

import pytest
from cases import REAL, SIDES, SOURCE, Case, recipe_of, remembers, two_sided
from rich.console import Console

from meristem.config.recipe import PretrainRecipe, Recipe, builtin_recipes, read_recipe, resolve_recipe
from meristem.dataset.feed import Feed
from meristem.dataset.token_dataset import TokenDataset
from meristem.learning.build import build_feeds, build_objectives
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.data.pretraining_data import load_pretraining_data

EVERY = [*REAL, Case({"name": "mlm", "exhaustive_masking": True}, "bert"),
         Case([{"name": "mlm", "exhaustive_masking": True}, "nsp"], "bert")]  # fmt: skip
MINIS = [
    name
    for name in builtin_recipes()
    if "mini" in name and isinstance(resolve_recipe(*read_recipe(name)), PretrainRecipe)
]
STEPS = 4


def counted(feed: Feed) -> float:
    """Tokens of a step, the mean over the first few."""
    return sum(feed.batch(use, micro).num_tokens for use in range(STEPS) for micro in range(feed.micro_steps)) / STEPS


def agrees(feed: Feed, recipe: Recipe) -> None:
    batch_tokens = recipe.train.batch_tokens
    assert batch_tokens - feed.tokens_per_sample < feed.batch_size * feed.tokens_per_sample <= batch_tokens
    assert counted(feed) == pytest.approx(feed.batch_size * feed.tokens_per_sample, rel=0.12)


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_a_step_has_the_tokens_that_were_asked_for(case: Case, tokenizer: Tokenizer, store: TokenDataset) -> None:
    recipe = recipe_of(case, batch_tokens=192 if remembers(case) else 1536)
    objectives = build_objectives(recipe, tokenizer)
    mark = SIDES.get(objectives[SOURCE].view.kind, "")
    stores = {SOURCE: two_sided(mark, tokenizer, store) if mark else store}
    (feed,) = build_feeds(recipe, objectives, tokenizer, stores, split="train", seed=3).values()
    agrees(feed, recipe)


@pytest.mark.parametrize("name", MINIS)
def test_shipped_recipes_read_what_they_ask_for(name: str) -> None:
    recipe_name, mapping = read_recipe(name)
    pairs = resolve_recipe(recipe_name, mapping).sources()[0].corpus.source.partition("?")[0]
    source = "builtin:microworld" if pairs == "builtin:pydocs" else pairs
    recipe = resolve_recipe(recipe_name, mapping, [f"corpus.source={source}?size=120", "tokenizer.vocab_size=300"])
    pretraining_data = load_pretraining_data(recipe, None, Console(quiet=True))
    for feed in pretraining_data.build_feeds(
        recipe, build_objectives(recipe, pretraining_data.tokenizer), split="train", seed=0
    ).values():
        agrees(feed, recipe)


def test_a_pass_holds_no_more_than_it_may(tokenizer: Tokenizer, store: TokenDataset) -> None:
    case = Case({"name": "mlm", "exhaustive_masking": True}, "bert")
    recipe = recipe_of(case, batch_tokens=1536, micro_batch_tokens=400)
    objectives = build_objectives(recipe, tokenizer)
    (feed,) = build_feeds(recipe, objectives, tokenizer, {SOURCE: store}, split="train", seed=3).values()
    assert feed.micro_steps > 1
    assert max(feed.batch(0, micro).num_tokens for micro in range(feed.micro_steps)) <= 400
