from __future__ import annotations

import pytest
import torch
from cases import SOURCE, Case, policy, real

from meristem.batch import Head, Model
from meristem.errors import RecipeError
from meristem.learning.learner import heads_of
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer


def test_the_loss_is_weights_times_sums_over_totals(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = real(Case("bilm", "elmo"), tokenizer, store)
    outcome = learner(SOURCE, feed.batch(0, 0), {"forward": 1000, "backward": 10})
    assert outcome.loss is not None
    torch.testing.assert_close(outcome.loss, 0.5 * outcome.sums["forward"] / 1000 + 0.5 * outcome.sums["backward"] / 10)
    assert outcome.loss.dtype == torch.float32


def test_exploring_has_no_gradient(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = policy("policy", tokenizer, store)
    batch = feed.batch(0, 0)
    explored = learner.explore(SOURCE, batch)
    assert not explored.goals["policy"]["advantage"].requires_grad
    assert not batch.goals and len(explored.owner) == 4 * len(batch.owner)
    assert explored.ids == batch.ids


def test_equal_heads_are_shared_and_differing_ones_refused(tokenizer: Tokenizer, store: Store) -> None:
    one, other = (
        policy("policy", tokenizer, store)[0].objectives[SOURCE],
        real(Case("clm", "gpt2"), tokenizer, store)[0].objectives[SOURCE],
    )
    assert heads_of({"a": one, "b": other}) == {"clm": Head("vocabulary"), "leash": Head("leash")}
    one.heads = {"clm": Head("pooled", (("classes", 3),))}
    with pytest.raises(RecipeError, match="head 'clm' is declared in two ways"):
        heads_of({"a": other, "b": one})


def test_a_tied_head_is_saved_under_both_names_and_moves_as_one(tokenizer: Tokenizer, store: Store) -> None:
    model: Model = real(Case("clm", "gpt2"), tokenizer, store)[0].model
    assert model.heads["clm"].weight is model.backbone.embedding().weight
    assert sum(p is model.backbone.embedding().weight for p in model.parameters()) == 1
