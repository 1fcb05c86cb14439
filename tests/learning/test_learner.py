from __future__ import annotations

import pytest
import torch
from cases import SOURCE, Case, real, toy

from meristem.batch import Head, Model
from meristem.learning.learner import heads_of
from meristem.settings import RecipeError
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer


def test_the_loss_is_weights_times_sums_over_totals(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = real(Case("bilm", "elmo"), tokenizer, store)
    outcome = learner(SOURCE, feed.batch(0, 0), {"forward": 1000, "backward": 10})
    assert outcome.loss is not None
    torch.testing.assert_close(outcome.loss, 0.5 * outcome.sums["forward"] / 1000 + 0.5 * outcome.sums["backward"] / 10)
    assert outcome.loss.dtype == torch.float32


def test_exploring_has_no_gradient(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = toy("rloo", tokenizer, store)
    batch = feed.batch(0, 0)
    explored = learner.explore(SOURCE, batch)
    assert not explored.goals["rloo"]["advantage"].requires_grad
    assert batch.goals["rloo"].keys() == {"at", "uniform"}
    assert torch.equal(explored.inputs["tokens"][:, :5], batch.inputs["tokens"][:, :5])
    sums = torch.zeros(8, dtype=torch.float64).index_add_(
        0, batch.owner, explored.goals["rloo"]["advantage"].view(-1, 4)[:, 0]
    )
    torch.testing.assert_close(sums, torch.zeros(8, dtype=torch.float64), atol=1e-12, rtol=0)


def test_equal_heads_are_shared_and_differing_ones_refused(tokenizer: Tokenizer, store: Store) -> None:
    one, other = (
        toy("rloo", tokenizer, store)[0].objectives[SOURCE],
        real(Case("clm", "gpt2"), tokenizer, store)[0].objectives[SOURCE],
    )
    assert heads_of({"a": one, "b": other}) == {"clm": Head("vocabulary")}

    class Other(type(one)):  # type: ignore[misc]  # a class made here
        heads = {"clm": Head("pooled", (("classes", 3),))}

    with pytest.raises(RecipeError, match="head 'clm' is declared in two ways"):
        heads_of({"a": other, "b": Other(None, tokenizer)})


def test_a_tied_head_is_saved_under_both_names_and_moves_as_one(tokenizer: Tokenizer, store: Store) -> None:
    model: Model = real(Case("clm", "gpt2"), tokenizer, store)[0].model
    assert model.heads["clm"].weight is model.backbone.embedding().weight
    assert sum(p is model.backbone.embedding().weight for p in model.parameters()) == 1
