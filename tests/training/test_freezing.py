"""Freezing and gradual unfreezing: what is trained when, and resuming."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from cases import Case, batches, real
from finetune_factory import FinetuneFactory, finetune_factory

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.dataset.token_dataset import TokenDataset
from meristem.evaluation.held_out_loss import eval_mode
from meristem.interfaces.backbone import Model
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.freezing import UnfreezeSchedule, prepare_trainable
from meristem.training.optim.param_groups import parameter_names
from meristem.training.settings import StartSettings

__all__ = ["finetune_factory"]


@pytest.fixture
def learner(tokenizer: Tokenizer, store: TokenDataset) -> Learner:
    return real(Case(["mlm", "nsp"], "bert"), tokenizer, store, dropout=0.1)[0].train()


def learning(model: Model) -> set[str]:
    """The parts of a model that learn, layers by number."""
    named = [name for parameter, name in parameter_names(model).items() if parameter.requires_grad]
    return {re.sub(r"^(backbone\.stack\.layers\.\d+|backbone\.embed|heads)\..*", r"\1", name) for name in named}


HEADS, TOP, LOW, WORDS = "heads", "backbone.stack.layers.1", "backbone.stack.layers.0", "backbone.embed"


@pytest.mark.parametrize(("unfreeze_every", "per_epoch"), [(10, 99.0), ("2epoch", 5.0)])
def test_one_more_layer_is_unfrozen_at_every_interval_and_the_embeddings_last(
    learner: Learner, unfreeze_every: int | str, per_epoch: float
) -> None:
    start = StartSettings(unfreeze_every=unfreeze_every)
    prepare_trainable(learner.model, start)
    assert learning(learner.model) == {HEADS, TOP, LOW, WORDS}, "optimizers must know everything that will learn"
    thawing = UnfreezeSchedule(learner.model, start, per_epoch)
    stages = {0: {HEADS}, 9: {HEADS}, 10: {HEADS, TOP}, 19: {HEADS, TOP}, 20: {HEADS, TOP, LOW},
              30: {HEADS, TOP, LOW, WORDS}, 500: {HEADS, TOP, LOW, WORDS}}  # fmt: skip
    for step in (*stages, 9, 25):  # a run may begin anywhere
        thawing(step)
        expected = stages.get(step, {HEADS, TOP, LOW})
        assert learning(learner.model) == expected, step


@pytest.mark.parametrize(("trainable", "expected"), [
    ("all", {HEADS, TOP, LOW, WORDS}), ("head", {HEADS}), ("embeddings", {HEADS, WORDS}),
])  # fmt: skip
def test_from_learns_selects_the_trainable_parameters(learner: Learner, trainable: Any, expected: set[str]) -> None:
    prepare_trainable(learner.model, StartSettings(train=trainable))
    assert learning(learner.model) == expected


def test_frozen_layers_have_no_dropout_also_after_an_evaluation(learner: Learner) -> None:
    start = StartSettings(unfreeze_every=1)
    prepare_trainable(learner.model, start)
    UnfreezeSchedule(learner.model, start, 1.0)(1)
    stack = learner.model.backbone.stack

    def modes() -> list[bool]:
        assert isinstance(stack, torch.nn.Module)
        layers = [layer.attention.training for layer in stack.layers]  # type: ignore[union-attr]  # a list of layers
        return [*layers, learner.model.backbone.embed.training, learner.model.heads.training]  # type: ignore[union-attr]

    assert modes() == [False, True, False, True]
    with eval_mode(learner):
        assert modes() == [False] * 4
    assert modes() == [False, True, False, True]


def test_a_frozen_backbone_records_nothing_and_gets_no_gradient(
    learner: Learner, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    feed = real(Case(["mlm", "nsp"], "bert"), tokenizer, store)[1]
    start = StartSettings(train="head")
    prepare_trainable(learner.model, start)
    UnfreezeSchedule(learner.model, start, 1.0)(0)
    batch = batches(feed, 0)[0]
    states = [learner.objectives["main"].encode(learner.model, batch).last_hidden_state for _ in range(2)]
    assert not states[0].requires_grad
    assert torch.equal(*states), "a frozen backbone in training still dropped something out"
    loss = learner("main", batch, {"mlm": 1, "nsp": 1}).loss
    assert loss is not None
    loss.backward()
    assert {n.split(".")[0] for n, p in learner.model.named_parameters() if p.grad is not None} == {"heads"}


@pytest.mark.parametrize(("overrides", "message"), [
    ({"unfreeze_every": "10m"}, "not after a time"),
    ({"unfreeze_every": 5, "embeddings_only_steps": 3}, "leave out embeddings_only_steps"),
    ({"unfreeze_every": 5, "train": "head"}, "leave out embeddings_only_steps and train"),
    ({"train": "head", "lora": {}}, "which train=head freezes"),
    ({"unfreeze_every": "soon"}, "expected steps"),
    ({"lora": {"target_modules": ["("]}}, "is not a valid regular expression"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        resolve_recipe("no", {"model": {"family": "bert"}, "objective": "mlm", "from": overrides})


def test_a_model_without_anything_to_learn_is_refused(tokenizer: Tokenizer, store: TokenDataset) -> None:
    model = real(Case("clm", "gpt2"), tokenizer, store)[0].model
    with pytest.raises(MeristemError, match=r"from\.train=head: no weight would be trained"):
        prepare_trainable(model, StartSettings(train="head"))


# ------------------------------------------------------------ whole runs


def test_only_the_head_learns_and_the_optimizer_remembers_nothing_else(finetune_factory: FinetuneFactory) -> None:
    finetune_factory.learn({"from.train": "head", "train.save_every": 1, "train.keep_checkpoints": 9})
    first, last = finetune_factory.weights(step=1), finetune_factory.weights(step=6)
    moved = {name for name in first if not first[name].equal(last[name])}
    assert moved and all(name.startswith("heads.classification.") for name in moved)
    assert finetune_factory.remembered() == moved
    assert " trainable)" in finetune_factory.output.getvalue()


@pytest.mark.parametrize("overrides", [
    {"from.unfreeze_every": 2}, {"from.unfreeze_every": "0.5epoch", "train.optimizer": "muon",
     "train.layer_lr_decay": 0.8},
    {"from.train": "embeddings"},
], ids=["thaw", "thaw muon decay", "embeddings"])  # fmt: skip
def test_an_interrupted_run_resumes_bit_for_bit(finetune_factory: FinetuneFactory, overrides: dict[str, Any]) -> None:
    dropout = {**overrides, "model.dropout": 0.1}
    finetune_factory.learn({**dropout, "train.steps": 3}, run="twice")
    finetune_factory.learn({**dropout, "train.steps": 7}, run="twice")
    finetune_factory.learn({**dropout, "train.steps": 7}, run="once")
    assert finetune_factory.losses("twice") == finetune_factory.losses("once")
    resumed_weights, other = finetune_factory.weights("twice"), finetune_factory.weights("once")
    assert all(torch.equal(resumed_weights[name], other[name]) for name in other)


def test_layers_change_only_after_they_are_unfrozen(finetune_factory: FinetuneFactory) -> None:
    finetune_factory.learn(
        {
            "from.unfreeze_every": 2,
            "train.steps": 8,
            "train.save_every": 1,
            "train.keep_checkpoints": 9,
            "model.position_encoding": "none",
        }
    )

    def moved(first: int, last: int) -> set[str]:
        before, after = finetune_factory.weights(step=first), finetune_factory.weights(step=last)
        changed = {name for name in before if not before[name].equal(after[name])}
        return {re.sub(r"^(backbone\.stack\.layers\.\d+|backbone\.stack|backbone\.embed|heads)\..*", r"\1", name)
                for name in changed}  # fmt: skip

    assert moved(1, 2) == {HEADS}
    assert moved(2, 4) >= {HEADS, TOP} and not {LOW, WORDS} & moved(2, 4)
    assert LOW in moved(4, 6) and WORDS not in moved(4, 6)
    assert WORDS in moved(6, 8)
