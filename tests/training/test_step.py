"""Optimizer step: non-finite steps, gradient clipping, seeding, devices and precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import ROWS, SOURCE, Case, batches, bits, gradients, policy, real, stepper_of, steps

from meristem.config.errors import RecipeError
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Batch
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.settings import TrainSettings
from meristem.training.step import Stepper, resolve_device

BERT = Case(["mlm", "nsp"], "bert")


def snapshot(stepper: Stepper) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in bits(stepper).items()}


@pytest.mark.parametrize("case", [BERT, Case("plm", "xlnet")], ids=str)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("location", ["loss", "gradient"])
def test_a_step_that_is_not_finite_touches_nothing(
    case: Any, optimizer: str, location: str, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    learner, feed, settings = real(case, tokenizer, store, optimizer=optimizer, micro=4)
    stepper = stepper_of(learner, settings)
    steps(stepper, feed, range(2))
    before = snapshot(stepper)
    weight = learner.model.backbone.embedding().weight
    if location == "gradient":
        handle = weight.register_hook(lambda grad: grad * torch.nan)
    else:
        handle = learner.model.backbone.register_forward_hook(
            lambda m, i, hidden: setattr(hidden, "last_hidden_state", hidden.last_hidden_state * torch.inf)
        )
    step = stepper.train_step(2, 6, SOURCE, batches(feed, 2))
    handle.remove()
    assert not step.is_finite
    after = snapshot(stepper)
    assert after.keys() == before.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert all(p.grad is None for p in learner.parameters())
    assert stepper.train_step(3, 6, SOURCE, batches(feed, 3)).is_finite


def test_one_bad_pass_of_several_is_enough(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = real(BERT, tokenizer, store, micro=2)
    stepper, calls = stepper_of(learner, settings), []

    def spoil(module: Any, arguments: Any, hidden: Any) -> None:
        calls.append(1)
        hidden.last_hidden_state = hidden.last_hidden_state * (torch.nan if len(calls) == 3 else 1.0)

    learner.model.backbone.register_forward_hook(spoil)
    assert not stepper.train_step(0, 6, SOURCE, batches(feed, 0)).is_finite
    assert len(calls) == 4


def test_a_step_reports_what_it_did(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = real(BERT, tokenizer, store, micro=4, warmup=0, learning_rate=0.002)
    learner.eval()
    full_batch = [feed.batch_at(0, ROWS)]
    stepper = stepper_of(learner, settings)
    step = stepper.train_step(0, 6, SOURCE, batches(feed, 0))
    assert step.terms.keys() == {"mlm", "nsp"}
    torch.testing.assert_close(step.terms["mlm"] + step.terms["nsp"], step.loss)
    assert step.metrics["nsp.accuracy"][1] == ROWS
    assert step.learning_rate == pytest.approx(0.002)
    assert (step.samples, step.tokens) == (ROWS, full_batch[0].num_tokens)


def test_gradients_are_clipped(tokenizer: Tokenizer, store: TokenDataset) -> None:
    moved = []
    for clip in (None, 1e-3):
        learner, feed, settings = real(
            BERT, tokenizer, store, max_grad_norm=clip, learning_rate=1.0, warmup=0, schedule="constant"
        )
        before = {n: p.detach().clone() for n, p in learner.named_parameters()}
        gradients_of_step = gradients(learner, feed)
        norm = torch.cat([g.flatten() for g in gradients_of_step.values()]).norm()
        learner.zero_grad()
        step_result = steps(stepper_of(learner, settings, plain=True), feed, range(1))[0]
        torch.testing.assert_close(step_result.grad_norm, norm)
        moved.append(torch.cat([(p - before[n]).flatten() for n, p in learner.named_parameters()]).norm().item())
    assert moved[1] == pytest.approx(1e-3, rel=1e-2)
    assert moved[0] > 100 * moved[1]


def test_dropout_is_seeded_by_the_step_alone(tokenizer: Tokenizer, store: TokenDataset) -> None:
    losses = []
    for noise in (1, 2):
        learner, feed, settings = real(BERT, tokenizer, store, dropout=0.3, micro=4)
        torch.manual_seed(noise)
        losses.append([float(t.loss) for t in steps(stepper_of(learner, settings), feed, range(2))])
    assert losses[0] == losses[1]
    learner, feed, settings = real(BERT, tokenizer, store, dropout=0.3, learning_rate=1e-12)
    stepper, same_batches = stepper_of(learner, settings), batches(feed, 0)
    assert stepper.train_step(0, 6, SOURCE, same_batches).loss != stepper.train_step(1, 6, SOURCE, same_batches).loss


def test_rollouts_are_seeded_by_the_step_alone(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = policy("policy", tokenizer, store, micro=4)
    stepper, sampled = stepper_of(learner, settings), []
    objective = learner.objectives[SOURCE]
    explore = objective.explore

    def noisy(model: Any, batch: Batch, history: Any = None) -> Batch:
        sampled.append(float(torch.rand(())))
        return explore(model, batch, history)

    objective.explore = noisy  # type: ignore[method-assign]  # rollouts that draw from torch
    for noise in (1, 2):
        torch.manual_seed(noise)
        stepper.train_step(4, 6, SOURCE, batches(feed, 4))
    assert sampled[:2] == sampled[2:]
    assert sampled[0] != sampled[1]


def test_the_cpu_can_be_asked_for() -> None:
    assert resolve_device(TrainSettings(device="cpu")) == torch.device("cpu")


@pytest.mark.parametrize("device", ["none", "", "cuda:x", "meta", "privateuseone", "cuda:99", "xla"])
def test_a_device_that_this_machine_lacks_is_refused(device: str) -> None:
    with pytest.raises(RecipeError, match=r"^train.device: .*: choose auto or "):
        resolve_device(TrainSettings(device=device))
