"""Averaged weights: the average itself, exact resume, what is evaluated and loaded, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_factory import RunFactory
from torch.optim.swa_utils import AveragedModel

from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import load_run
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError, RecipeError
from meristem.training.optim.param_groups import parameter_names
from meristem.training.optim.weight_average import WeightAverage


def snapshot_of(run: Path) -> Snapshot:
    checkpoint = load_checkpoint(run / "checkpoints")
    assert checkpoint is not None
    return checkpoint.snapshot


@pytest.mark.parametrize("decay", [0.5, 0.95])
def test_the_average_is_torchs_with_the_same_decays(decay: float) -> None:
    """Compared with `AveragedModel`; the decay of the first steps is smaller."""
    model = torch.nn.Linear(3, 2)
    average = WeightAverage(parameter_names(model), decay)
    step = 0
    theirs = AveragedModel(
        model, avg_fn=lambda old, new, _: torch.lerp(old, new, 1 - min(decay, (1 + step) / (10 + step)))
    )
    theirs.n_averaged.fill_(1)  # at its first update it would copy the weights
    for step in range(30):
        with torch.no_grad():
            model.weight += torch.randn(2, 3)
            model.bias += torch.randn(2)
        average.update(step)
        theirs.update_parameters(model)
    trained = model.weight.clone()
    with average.applied():
        torch.testing.assert_close(model.weight, theirs.module.weight)
        torch.testing.assert_close(model.bias, theirs.module.bias)
        assert not torch.allclose(model.weight, trained)
    assert torch.equal(model.weight, trained)


@pytest.mark.parametrize("options", [("train.optimizer=muon",), ("train.precision=bfloat16",)], ids=str)
def test_an_interrupted_run_resumes_bit_for_bit(run_factory: RunFactory, options: tuple[str, ...]) -> None:
    overrides = ("train.ema_decay=0.9", "train.evaluate_every=2", *options)
    run_factory.train(*overrides, run="whole")
    run_factory.interrupt(*overrides, at=3)
    run_factory.train(*overrides)
    run_factory.assert_equal_runs("whole", "run")


def test_training_is_unchanged_and_the_average_is_what_is_measured_and_loaded(run_factory: RunFactory) -> None:
    plain_result = run_factory.train(run="plain")
    result = run_factory.train("train.ema_decay=0.9")
    assert run_factory.losses() == run_factory.losses("plain")
    plain, averaged = (snapshot_of(run_factory.root / run) for run in ("plain", "run"))
    for name, tensor in plain.model.items():
        if f"{name}/trained" in averaged.optimizer:
            assert torch.equal(averaged.optimizer[f"{name}/trained"], tensor)
            assert not torch.equal(averaged.model[name], tensor)
    loaded = load_run(run_factory.root / "run")
    assert all(torch.equal(value, averaged.model[name]) for name, value in loaded.learner.model.state_dict().items())
    assert result.metrics["loss"] != plain_result.metrics["loss"]
    assert result.test["loss"] != plain_result.test["loss"]


def test_a_changed_checkpoint_and_sharding_are_refused(run_factory: RunFactory) -> None:
    model = torch.nn.Linear(3, 2)
    average = WeightAverage(parameter_names(model), 0.9)
    with pytest.raises(MeristemError, match="weight/trained is missing or invalid"):
        average.restore({"weight/trained": torch.zeros(3, 2), "bias/trained": torch.zeros(2)})
    with pytest.raises(RecipeError, match="ema_decay: averaged weights are not sharded; leave out fsdp"):
        run_factory.recipe("gpt2", "train.ema_decay=0.9", "train.fsdp=true")
