"""Rewards with a history: saved with the train state, and the same after a resume and with several processes."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_processes import run_processes
from rich.console import Console
from run_factory import RunFactory

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.training import trainer
from meristem.training.budget import StepFlops, step_flops

RECIPE = """
from:    run
data:    {train: "builtin:microworld-queries?size=12&seed=4", text: query, target: text, held_out: 0.25}
rewards: [{name: clicks, table: "builtin:microworld-clicks?size=120&seed=7", top_k: 2, compare_with: both,
           click_model: {prior_precisions: [3.0], folds: 3}}]
policy:  {num_generations: 3, max_new_tokens: 6, eval_prompts: 3}
train:   {steps: 4, batch_samples: 4, learning_rate: 1e-2, schedule: constant, warmup: 0.0, log_every: 1,
          evaluate_every: 4,
          threads: 1}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that writes, trained once."""
    root = tmp_path_factory.mktemp("writer")
    RunFactory(root).train("train.steps=4")
    return root / "run"


@pytest.fixture
def writer(run_factory: RunFactory, trained: Path, monkeypatch: pytest.MonkeyPatch) -> RunFactory:
    monkeypatch.setenv("MERISTEM_CACHE", str(run_factory.root / "cache"))
    shutil.copytree(trained, run_factory.root / "run")
    (run_factory.root / "r.yaml").write_text(RECIPE, encoding="utf-8")
    return run_factory


def reinforced(run_factory: RunFactory, *overrides: str, out: str) -> Any:
    return api.reinforce(
        "r.yaml", overrides, out=run_factory.root / out, console=Console(file=run_factory.output, width=200)
    )


def weights_and_history(run_factory: RunFactory, out: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    checkpoint = load_checkpoint(run_factory.root / out / "checkpoints")
    assert checkpoint is not None
    return checkpoint.snapshot.model, checkpoint.snapshot.state["histories"]


def dearer(*step_arguments: Any) -> StepFlops:
    """A step counted on other texts, as a model that has learned writes them."""
    counted = step_flops(*step_arguments)
    return replace(counted, train_flops=2 * counted.train_flops)


def flops(run_factory: RunFactory, out: str) -> float:
    checkpoint = load_checkpoint(run_factory.root / out / "checkpoints")
    assert checkpoint is not None
    return float(checkpoint.snapshot.state["flops"])


def test_a_resumed_run_has_the_history_of_what_it_generated(
    writer: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reinforced(writer, out="whole")
    reinforced(writer, "train.steps=2", out="broken")
    _, half = weights_and_history(writer, "broken")
    monkeypatch.setattr(trainer, "step_flops", dearer)
    reinforced(writer, out="broken")
    assert flops(writer, "broken") == flops(writer, "whole") > 0.0
    (expected_weights, history), (broken, resumed_history) = (
        weights_and_history(writer, "whole"),
        weights_and_history(writer, "broken"),
    )
    assert all(torch.equal(expected_weights[name], broken[name]) for name in expected_weights)
    assert json.dumps(history) == json.dumps(resumed_history) != json.dumps(half)
    entries = history["policy"]["clicks"]
    assert entries and all(1 <= len(entry) <= 2 for entry in entries.values())
    reinforced(writer, "rewards.clicks.compare_with=table", out="plain")
    plain, none = weights_and_history(writer, "plain")
    assert none == {} and not all(
        torch.equal(expected_weights[name], plain[name]) for name in expected_weights
    )  # it does count


def test_two_processes_remember_what_one_does(writer: RunFactory) -> None:
    reinforced(writer, "train.steps=2", out="one")
    (writer.root / "said").mkdir()

    def work(rank: int) -> None:
        os.chdir(writer.root)
        api.reinforce("r.yaml", ["train.steps=2"], out=writer.root / "two", console=Console(quiet=True))

    run_processes(2, work, writer.root / "said")
    history, second_history = (weights_and_history(writer, out)[1] for out in ("one", "two"))
    texts = [
        {q: [e[0] for e in click] for q, click in h["policy"]["clicks"].items()} for h in (history, second_history)
    ]
    assert texts[0] == texts[1] and list(texts[0]) == list(texts[1])
    odds = [[e[1] for click in h["policy"]["clicks"].values() for e in click] for h in (history, second_history)]
    assert odds[0] == pytest.approx(odds[1], rel=1e-9)
    rewards = [[line["reward"] for line in writer.lines("train", out)] for out in ("one", "two")]
    assert rewards[0] == pytest.approx(rewards[1], rel=1e-6) and len(rewards[0]) == 2
