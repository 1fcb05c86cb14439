"""Complete pretraining runs: budgets, evaluation, early stopping, resuming, and errors."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from run_factory import RunFactory

from meristem.checkpoint.load import find_problems, load_checkpoint
from meristem.checkpoint.load_run import load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.training.step import Stepper, StepResult

# ------------------------------------------------------------ budgets


def test_a_budget_of_steps(run_factory: RunFactory) -> None:
    result = run_factory.train("train.steps=7")
    assert result.step == 7
    assert run_factory.facts()["used"]["steps"] == 7
    assert [line["step"] for line in run_factory.lines("train")] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.usefixtures("draws_curves")
def test_a_run_draws_its_curves(run_factory: RunFactory) -> None:
    pytest.importorskip("matplotlib")
    run_factory.train("train.steps=2")
    assert (run_factory.root / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_budget_of_tokens(run_factory: RunFactory) -> None:
    run_factory.train("train.tokens=1280")
    assert run_factory.facts()["used"]["tokens"] == 1280
    assert run_factory.facts()["step"] == 10


def test_a_budget_of_epochs_reads_the_text_that_often(run_factory: RunFactory) -> None:
    run_factory.train("train.epochs=0.5")
    half, facts = run_factory.facts()["used"]["tokens"], run_factory.facts()
    run_factory.train("train.epochs=1", run="whole")
    assert facts["step"] > 5
    assert run_factory.facts("whole")["used"]["tokens"] == pytest.approx(2 * half, abs=128)


def test_a_budget_of_flops(run_factory: RunFactory) -> None:
    run_factory.train("train.steps=5")
    per_step = run_factory.facts()["used"]["flops"] / 5
    run_factory.train(f"train.flops={per_step * 9}", run="counted")
    assert run_factory.facts("counted")["step"] == 9
    assert run_factory.facts("counted")["used"]["flops"] == pytest.approx(9 * per_step)


def test_a_budget_of_minutes_becomes_steps_once(run_factory: RunFactory) -> None:
    run_factory.train("train.minutes=0.05")
    facts = run_factory.facts()
    assert facts["step"] > 3
    assert 0.005 < facts["used"]["minutes"] < 0.5  # three seconds; the machine may be busy
    state = json.loads((run_factory.root / f"run/checkpoints/step-{facts['step']:08d}/state.json").read_bytes())
    assert (state["budget"], state["total"]) == ("0.05 minutes", facts["step"])


# ------------------------------------------------------------ evaluation


def test_evaluates_at_intervals_and_tests_once(run_factory: RunFactory) -> None:
    result = run_factory.train("train.steps=10", "train.evaluate_every=4", family="bert")
    assert [line["step"] for line in run_factory.lines("evaluation")] == [4, 8, 10]
    (test,) = run_factory.lines("test")
    assert test["step"] == 10
    assert {"loss", "mlm", "nsp", "perplexity", "mlm.top1", "mlm.top5", "nsp.accuracy"} <= test.keys()
    assert run_factory.facts()["test"] == result.test == {key: test[key] for key in result.test}
    assert "| loss |" in (run_factory.root / "run/README.md").read_text(encoding="utf-8")


def test_evaluating_does_not_change_the_training(run_factory: RunFactory) -> None:
    run_factory.train("model.dropout=0.1", "train.evaluate_every=1", run="often")
    run_factory.train("model.dropout=0.1", "train.evaluate_every=1000", run="seldom")
    assert run_factory.losses("often") == run_factory.losses("seldom")


RISKY = (
    "train.learning_rate=0.2",
    "train.warmup=20",
    "train.schedule=constant",
    "train.max_grad_norm=null",
    "train.evaluate_every=2",
)
"""A rate that soon makes it worse, so that the best is neither the first nor the last."""


def test_the_best_is_kept_though_no_save_was_due(run_factory: RunFactory) -> None:
    run_factory.train(*RISKY, "train.steps=40", "train.save_every=1h", "train.keep_checkpoints=1")
    measured = {line["step"]: line["loss"] for line in run_factory.lines("evaluation")}
    best = min(measured, key=lambda step: measured[step])
    assert best < 40
    assert run_factory.steps() == [best, 40]
    assert load_run(run_factory.root / "run", which="best").step == best
    assert load_run(run_factory.root / "run").step == 40


def test_stops_early_and_ends_with_the_best(run_factory: RunFactory) -> None:
    settings = (*RISKY, "train.steps=60", "train.patience=3")
    result = run_factory.train(*settings)
    measured = {line["step"]: line["loss"] for line in run_factory.lines("evaluation")}
    best = min(measured, key=lambda step: measured[step])
    assert result.step == best + 6 < 60
    assert load_run(run_factory.root / "run").step == best
    assert run_factory.facts()["validation"]["loss"] == result.metrics["loss"] == measured[best]
    assert f"stopped early at step {result.step}" in run_factory.output.getvalue()
    second_result = run_factory.train(*settings)
    assert second_result == result, "an early stop is an end: going on would undo it"
    assert len(run_factory.lines("test")) == 1


def test_too_few_documents_to_hold_any_out_is_said(run_factory: RunFactory) -> None:
    result = run_factory.train("corpus.validation=0", "corpus.test=0")
    assert (result.metrics, result.test) == ({}, {})
    assert "too few documents to hold any out" in run_factory.output.getvalue()


def test_one_held_out_document_is_paired_with_itself(run_factory: RunFactory) -> None:
    result = run_factory.train("corpus.validation=0.02", "corpus.test=0.02", family="bert")
    assert result.step == 6 and result.metrics["nsp"] > 0 and result.test["nsp"] > 0


# ------------------------------------------------------------ going on


def test_a_larger_budget_resumes(run_factory: RunFactory) -> None:
    run_factory.train("train.steps=6", "train.schedule=constant", "train.warmup=0")
    result = run_factory.train("train.steps=10", "train.schedule=constant", "train.warmup=0")
    run_factory.train("train.steps=10", "train.schedule=constant", "train.warmup=0", run="at-once")
    assert result.step == 10
    assert "Resuming from step 6 of tiny" in run_factory.output.getvalue()
    assert run_factory.losses() == run_factory.losses("at-once")
    resumed_checkpoint, other = (load_checkpoint(run_factory.root / run / "checkpoints") for run in ("run", "at-once"))
    assert resumed_checkpoint is not None and other is not None
    assert all(resumed_checkpoint.snapshot.model[name].equal(tensor) for name, tensor in other.snapshot.model.items())


def test_a_smaller_budget_is_refused(run_factory: RunFactory) -> None:
    run_factory.train("train.steps=6")
    with pytest.raises(MeristemError, match=r"4 steps, but the run has already taken 6; budgets may only grow"):
        run_factory.train("train.steps=4")


def test_devices_and_intervals_may_change(run_factory: RunFactory) -> None:
    run_factory.train("train.steps=4")
    result = run_factory.train(
        "train.steps=6",
        "train.save_every=2",
        "train.log_every=3",
        "train.keep_checkpoints=5",
        "train.dataloader_workers=1",
        "corpus.processes=2",
    )
    assert result.step == 6


def test_another_rate_is_refused_with_the_difference_and_two_commands(run_factory: RunFactory) -> None:
    run_factory.train()
    with pytest.raises(RecipeError) as error:
        run_factory.train("train.learning_rate=5e-4", "model.layers=2")
    message = str(error.value)
    assert "train.learning_rate: 0.001 in the run, 0.0005 now" in message
    assert "model.layers: 1 in the run, 2 now" in message
    assert f"--out {run_factory.root / 'run'}-2" in message
    assert "--fresh" in message


def test_fresh_moves_the_old_run_aside(run_factory: RunFactory) -> None:
    run_factory.train("train.learning_rate=1e-3")
    old = run_factory.losses()
    run_factory.train("train.learning_rate=5e-4", fresh=True)
    assert run_factory.losses("run.old-1") == old
    assert run_factory.losses() != old
    assert "The old run is kept as" in run_factory.output.getvalue()


def test_a_finished_run_says_so_and_how_to_resume(run_factory: RunFactory) -> None:
    result = run_factory.train()
    before = (run_factory.root / "run/metrics.jsonl").read_bytes()
    assert run_factory.train() == result
    assert "has used its budget (6 steps): nothing to do" in run_factory.output.getvalue()
    assert "train.steps=12" in run_factory.output.getvalue()
    assert (run_factory.root / "run/metrics.jsonl").read_bytes() == before


def test_a_run_killed_after_its_last_step_is_still_finished(run_factory: RunFactory) -> None:
    result = run_factory.train()
    text = (run_factory.root / "run/metrics.jsonl").read_text(encoding="utf-8")
    for name in ("finished.json", "README.md"):
        (run_factory.root / "run" / name).unlink()
    second_result = run_factory.train()
    assert (second_result.metrics, second_result.test) == (result.metrics, result.test)
    assert run_factory.facts()["test"] == result.test
    assert (run_factory.root / "run/README.md").is_file()
    assert (run_factory.root / "run/metrics.jsonl").read_text(encoding="utf-8") == text, "the test was counted twice"


def test_a_start_that_was_killed_is_not_in_the_way(run_factory: RunFactory) -> None:
    half = run_factory.root / "run"
    half.mkdir()
    (half / ".begun").touch()
    (half / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert run_factory.train().step == 6


@pytest.mark.parametrize("existing", ["a folder that holds other files", "a file"])
def test_what_is_not_a_run_is_left_alone(run_factory: RunFactory, existing: str) -> None:
    theirs = run_factory.root / "run" / "tokenizer.json" if existing != "a file" else run_factory.root / "run"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("precious", encoding="utf-8")
    with pytest.raises(MeristemError, match=f"is {existing}: choose another folder with --out"):
        run_factory.train()
    assert theirs.read_text(encoding="utf-8") == "precious"


def _hold(path: str, ready: Connection) -> None:
    with RunFolder(Path(path)).hold_lock():
        ready.send("locked")
        ready.recv()


def test_two_processes_cannot_train_in_one_run(run_factory: RunFactory) -> None:
    run_factory.train()
    parent_end, child_end = multiprocessing.Pipe()
    other = multiprocessing.get_context("fork").Process(target=_hold, args=(str(run_factory.root / "run"), child_end))
    other.start()
    assert parent_end.recv() == "locked"
    with pytest.raises(MeristemError, match=f"is in use by process {other.pid}, which is training there"):
        run_factory.train("train.steps=12")
    parent_end.send("enough")
    other.join(10)
    assert run_factory.train("train.steps=12").step == 12


def test_shards_that_are_gone_are_made_again(run_factory: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = run_factory.root / "cache"
    monkeypatch.setenv("MERISTEM_CACHE", str(cache))
    run_factory.train("train.steps=4", "train.schedule=constant")
    shutil.rmtree(cache)
    assert run_factory.train("train.steps=6", "train.schedule=constant").step == 6


def test_text_that_changed_is_another_run(run_factory: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, text = run_factory.root / "cache", run_factory.root / "text.txt"
    monkeypatch.setenv("MERISTEM_CACHE", str(cache))
    lines = [f"The sailor counted {number} boats in the harbour." for number in range(200)]
    text.write_text("\n".join(lines), encoding="utf-8")
    settings = (f"corpus.source={text}", "corpus.document=line")
    run_factory.train("train.steps=4", *settings)
    text.write_text("something else entirely\n" * 3, encoding="utf-8")
    run_factory.train("train.steps=6", *settings)  # the shards it began with are still there
    shutil.rmtree(cache)
    with pytest.raises(MeristemError, match="the text has changed since this run started"):
        run_factory.train("train.steps=8", *settings)


# ------------------------------------------------------------ what is not finite


WILD = (
    "train.learning_rate=1e30",
    "train.warmup=0",
    "train.max_grad_norm=null",
    "train.steps=20",
    "train.evaluate_every=100",
)


def test_steps_that_are_not_finite_are_skipped_counted_and_named_and_five_stop_the_run(run_factory: RunFactory) -> None:
    with pytest.raises(MeristemError, match=r"5 steps in a row were not finite .*train\.learning_rate") as error:
        run_factory.train(*WILD, "train.save_every=1")
    skipped = run_factory.lines("skipped")
    assert len(skipped) == 5
    assert [line["step"] for line in skipped] == list(range(skipped[0]["step"], skipped[0]["step"] + 5))
    assert all(line["samples"] and line["texts"][0].strip() for line in skipped)
    assert run_factory.lines("train")[-1]["skipped"] >= 4
    assert str(run_factory.root / "run/checkpoints") in str(error.value)
    assert "the step is skipped" in run_factory.output.getvalue()
    for step in run_factory.steps():
        assert find_problems(run_factory.root / f"run/checkpoints/step-{step:08d}") == []
    model = load_run(run_factory.root / "run").learner.model
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_no_checkpoint_is_promised_where_none_was_saved(run_factory: RunFactory) -> None:
    with pytest.raises(MeristemError, match="no checkpoint had been saved yet"):
        run_factory.train(*WILD, "train.save_every=1h")


def test_a_few_bad_steps_do_not_stop_a_run(run_factory: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches in a row overflow; the steps around them are taken."""
    train_step = Stepper.train_step

    def poisoned(self: Stepper, step: int, *rest: Any) -> StepResult:
        factor = float("inf") if step in (2, 3) else 1.0
        hook = self.learner.model.backbone.embedding().weight.register_hook(lambda gradient: gradient * factor)
        step_result = train_step(self, step, *rest)
        hook.remove()
        return step_result

    monkeypatch.setattr(Stepper, "train_step", poisoned)
    result = run_factory.train("train.steps=8")
    assert result.step == 8
    assert [line["step"] for line in run_factory.lines("skipped")] == [3, 4]
    assert run_factory.lines("train")[-1]["skipped"] == 2
    assert [line["step"] for line in run_factory.lines("train") if "loss" in line] == [1, 2, 5, 6, 7, 8]


# ------------------------------------------------------------ a damaged checkpoint


def test_resumes_from_an_older_checkpoint_if_the_newest_is_damaged(run_factory: RunFactory) -> None:
    settings = ("train.save_every=2", "train.schedule=constant", "train.warmup=0", "train.evaluate_every=100")
    run_factory.train("train.steps=6", *settings)
    weights = run_factory.root / "run/checkpoints/step-00000006/model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    weights.write_bytes(damaged)
    run_factory.train("train.steps=8", *settings)
    run_factory.train("train.steps=8", *settings, run="sound")
    assert "step-00000006 is damaged: model.safetensors has changed" in run_factory.output.getvalue()
    assert "Resuming from step 4" in run_factory.output.getvalue()
    assert run_factory.losses() == run_factory.losses("sound")
