"""Tokens asked for are tokens counted, for every objective, family and shipped recipe."""

from __future__ import annotations

import pytest
from cases import REAL, SIDES, SOURCE, Case, recipe_of, remembers, two_sided
from rich.console import Console

from meristem.learning.assemble import feeds_of, objectives_of
from meristem.learning.feed import Feed
from meristem.recipe import Recipe, read, resolve, shipped
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.shards import gather

EVERY = [*REAL, Case({"name": "mlm", "exhaustive": True}, "bert"),
         Case([{"name": "mlm", "exhaustive": True}, "nsp"], "bert")]  # fmt: skip
MINIS = [name for name in shipped() if "mini" in name and resolve(*read(name)).task is None
         and resolve(*read(name)).policy is None]  # fmt: skip
STEPS = 4


def counted(feed: Feed) -> float:
    """Tokens of a step, the mean over the first few."""
    return sum(feed.batch(use, micro).tokens for use in range(STEPS) for micro in range(feed.micro_steps)) / STEPS


def agrees(feed: Feed, recipe: Recipe) -> None:
    asked = recipe.train.batch_tokens
    assert asked - feed.tokens_per_sample < feed.rows * feed.tokens_per_sample <= asked
    assert counted(feed) == pytest.approx(feed.rows * feed.tokens_per_sample, rel=0.12)


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_a_step_has_the_tokens_that_were_asked_for(case: Case, tokenizer: Tokenizer, store: Store) -> None:
    recipe = recipe_of(case, batch_tokens=192 if remembers(case) else 1536)
    objectives = objectives_of(recipe, tokenizer)
    mark = SIDES.get(objectives[SOURCE].view.kind, "")
    stores = {SOURCE: two_sided(mark, tokenizer, store) if mark else store}
    (feed,) = feeds_of(recipe, objectives, tokenizer, stores, split="train", seed=3).values()
    agrees(feed, recipe)


@pytest.mark.parametrize("name", MINIS)
def test_shipped_recipes_read_what_they_ask_for(name: str) -> None:
    recipe_name, mapping = read(name)
    pairs = resolve(recipe_name, mapping).sources()[0].corpus.source.partition("?")[0]
    source = "builtin:microworld" if pairs == "builtin:pydocs" else pairs
    recipe = resolve(recipe_name, mapping, [f"corpus.source={source}?size=120", "tokenizer.size=300"])
    made = gather(recipe, None, Console(quiet=True))
    for feed in made.feeds(recipe, objectives_of(recipe, made.tokenizer), split="train", seed=0).values():
        agrees(feed, recipe)


def test_a_pass_holds_no_more_than_it_may(tokenizer: Tokenizer, store: Store) -> None:
    case = Case({"name": "mlm", "exhaustive": True}, "bert")
    recipe = recipe_of(case, batch_tokens=1536, micro_tokens=400)
    objectives = objectives_of(recipe, tokenizer)
    (feed,) = feeds_of(recipe, objectives, tokenizer, {SOURCE: store}, split="train", seed=3).values()
    assert feed.micro_steps > 1
    assert max(feed.batch(0, micro).tokens for micro in range(feed.micro_steps)) <= 400
