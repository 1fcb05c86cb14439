from __future__ import annotations

import pytest
import torch
from cases import SOURCE, Case, policy, real

from meristem.config.errors import RecipeError
from meristem.dataset.token_dataset import TokenDataset
from meristem.interfaces.backbone import Head, Model
from meristem.learning.learner import collect_heads
from meristem.tokenizers.tokenizer import Tokenizer


def test_the_loss_is_weights_times_sums_over_totals(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = real(Case("bilm", "elmo"), tokenizer, store)
    outcome = learner(SOURCE, feed.batch(0, 0), {"forward": 1000, "backward": 10})
    assert outcome.loss is not None
    torch.testing.assert_close(
        outcome.loss, 0.5 * outcome.loss_sums["forward"] / 1000 + 0.5 * outcome.loss_sums["backward"] / 10
    )
    assert outcome.loss.dtype == torch.float32


def test_exploring_has_no_gradient(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = policy("policy", tokenizer, store)
    batch = feed.batch(0, 0)
    explored = learner.explore(SOURCE, batch)
    assert not explored.targets["policy"]["advantage"].requires_grad
    assert not batch.targets and len(explored.sample_index) == 4 * len(batch.sample_index)
    assert explored.sample_ids == batch.sample_ids


def test_equal_heads_are_shared_and_differing_ones_refused(tokenizer: Tokenizer, store: TokenDataset) -> None:
    first_objective, other = (
        policy("policy", tokenizer, store)[0].objectives[SOURCE],
        real(Case("clm", "gpt2"), tokenizer, store)[0].objectives[SOURCE],
    )
    assert collect_heads({"a": first_objective, "b": other}) == {"clm": Head("vocabulary"), "leash": Head("leash")}
    first_objective.heads = {"clm": Head("pooled", (("classes", 3),))}
    with pytest.raises(RecipeError, match="head 'clm' is declared in two different ways"):
        collect_heads({"a": other, "b": first_objective})


def test_a_tied_head_is_saved_under_both_names_and_moves_as_one(tokenizer: Tokenizer, store: TokenDataset) -> None:
    model: Model = real(Case("clm", "gpt2"), tokenizer, store)[0].model
    assert model.heads["clm"].weight is model.backbone.embedding().weight
    assert sum(p is model.backbone.embedding().weight for p in model.parameters()) == 1
