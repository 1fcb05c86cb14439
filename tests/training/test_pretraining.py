"""Complete pretraining runs: budgets, evaluation, early stopping, resuming, and errors."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from place import Place

from meristem.checkpoint.load import find_problems, load_checkpoint
from meristem.checkpoint.load_run import load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.training.step import Stepper, StepResult

# ------------------------------------------------------------ budgets


def test_a_budget_of_steps(place: Place) -> None:
    ended = place.train("train.steps=7")
    assert ended.step == 7
    assert place.facts()["used"]["steps"] == 7
    assert [line["step"] for line in place.lines("train")] == [1, 2, 3, 4, 5, 6, 7]


def test_a_budget_of_tokens(place: Place) -> None:
    place.train("train.tokens=1280")
    assert place.facts()["used"]["tokens"] == 1280
    assert place.facts()["step"] == 10


def test_a_budget_of_epochs_reads_the_text_that_often(place: Place) -> None:
    place.train("train.epochs=0.5")
    half, facts = place.facts()["used"]["tokens"], place.facts()
    place.train("train.epochs=1", run="whole")
    assert facts["step"] > 5
    assert place.facts("whole")["used"]["tokens"] == pytest.approx(2 * half, abs=128)


def test_a_budget_of_flops(place: Place) -> None:
    place.train("train.steps=5")
    per_step = place.facts()["used"]["flops"] / 5
    place.train(f"train.flops={per_step * 9}", run="counted")
    assert place.facts("counted")["step"] == 9
    assert place.facts("counted")["used"]["flops"] == pytest.approx(9 * per_step)


def test_a_budget_of_minutes_becomes_steps_once(place: Place) -> None:
    place.train("train.minutes=0.05")
    facts = place.facts()
    assert facts["step"] > 3
    assert 0.005 < facts["used"]["minutes"] < 0.5  # three seconds; the machine may be busy
    state = json.loads((place.root / f"run/checkpoints/step-{facts['step']:08d}/state.json").read_bytes())
    assert (state["budget"], state["total"]) == ("0.05 minutes", facts["step"])


# ------------------------------------------------------------ evaluation


def test_evaluates_at_intervals_and_tests_once(place: Place) -> None:
    ended = place.train("train.steps=10", "train.evaluate_every=4", family="bert")
    assert [line["step"] for line in place.lines("evaluation")] == [4, 8, 10]
    (test,) = place.lines("test")
    assert test["step"] == 10
    assert {"loss", "mlm", "nsp", "perplexity", "mlm.top1", "mlm.top5", "nsp.accuracy"} <= test.keys()
    assert place.facts()["test"] == ended.test == {key: test[key] for key in ended.test}
    assert "| loss |" in (place.root / "run/README.md").read_text(encoding="utf-8")


def test_evaluating_does_not_change_the_training(place: Place) -> None:
    place.train("model.dropout=0.1", "train.evaluate_every=1", run="often")
    place.train("model.dropout=0.1", "train.evaluate_every=1000", run="seldom")
    assert place.losses("often") == place.losses("seldom")


RISKY = (
    "train.learning_rate=0.2",
    "train.warmup=20",
    "train.schedule=constant",
    "train.max_grad_norm=null",
    "train.evaluate_every=2",
)
"""A rate that soon makes it worse, so that the best is neither the first nor the last."""


def test_the_best_is_kept_though_no_save_was_due(place: Place) -> None:
    place.train(*RISKY, "train.steps=40", "train.save_every=1h", "train.keep_checkpoints=1")
    measured = {line["step"]: line["loss"] for line in place.lines("evaluation")}
    best = min(measured, key=lambda step: measured[step])
    assert best < 40
    assert place.steps() == [best, 40]
    assert load_run(place.root / "run", which="best").step == best
    assert load_run(place.root / "run").step == 40


def test_stops_early_and_ends_with_the_best(place: Place) -> None:
    settings = (*RISKY, "train.steps=60", "train.patience=3")
    ended = place.train(*settings)
    measured = {line["step"]: line["loss"] for line in place.lines("evaluation")}
    best = min(measured, key=lambda step: measured[step])
    assert ended.step == best + 6 < 60
    assert load_run(place.root / "run").step == best
    assert place.facts()["validation"]["loss"] == ended.metrics["loss"] == measured[best]
    assert f"stopped early at step {ended.step}" in place.said.getvalue()
    again = place.train(*settings)
    assert again == ended, "an early stop is an end: going on would undo it"
    assert len(place.lines("test")) == 1


def test_too_few_documents_to_hold_any_out_is_said(place: Place) -> None:
    ended = place.train("corpus.validation=0", "corpus.test=0")
    assert (ended.metrics, ended.test) == ({}, {})
    assert "too few documents to hold any out" in place.said.getvalue()


def test_one_held_out_document_is_paired_with_itself(place: Place) -> None:
    ended = place.train("corpus.validation=0.02", "corpus.test=0.02", family="bert")
    assert ended.step == 6 and ended.metrics["nsp"] > 0 and ended.test["nsp"] > 0


# ------------------------------------------------------------ going on


def test_a_larger_budget_resumes(place: Place) -> None:
    place.train("train.steps=6", "train.schedule=constant", "train.warmup=0")
    ended = place.train("train.steps=10", "train.schedule=constant", "train.warmup=0")
    place.train("train.steps=10", "train.schedule=constant", "train.warmup=0", run="at-once")
    assert ended.step == 10
    assert "Resuming from step 6 of tiny" in place.said.getvalue()
    assert place.losses() == place.losses("at-once")
    one, other = (load_checkpoint(place.root / run / "checkpoints") for run in ("run", "at-once"))
    assert one is not None and other is not None
    assert all(one.snapshot.model[name].equal(tensor) for name, tensor in other.snapshot.model.items())


def test_a_smaller_budget_is_refused(place: Place) -> None:
    place.train("train.steps=6")
    with pytest.raises(MeristemError, match=r"4 steps, but the run has already taken 6; budgets may only grow"):
        place.train("train.steps=4")


def test_devices_and_intervals_may_change(place: Place) -> None:
    place.train("train.steps=4")
    ended = place.train(
        "train.steps=6",
        "train.save_every=2",
        "train.log_every=3",
        "train.keep_checkpoints=5",
        "train.dataloader_workers=1",
        "corpus.processes=2",
    )
    assert ended.step == 6


def test_another_rate_is_refused_with_the_difference_and_two_commands(place: Place) -> None:
    place.train()
    with pytest.raises(RecipeError) as error:
        place.train("train.learning_rate=5e-4", "model.layers=2")
    told = str(error.value)
    assert "train.learning_rate: 0.001 in the run, 0.0005 now" in told
    assert "model.layers: 1 in the run, 2 now" in told
    assert f"--out {place.root / 'run'}-2" in told
    assert "--fresh" in told


def test_fresh_moves_the_old_run_aside(place: Place) -> None:
    place.train("train.learning_rate=1e-3")
    old = place.losses()
    place.train("train.learning_rate=5e-4", fresh=True)
    assert place.losses("run.old-1") == old
    assert place.losses() != old
    assert "The old run is kept as" in place.said.getvalue()


def test_a_finished_run_says_so_and_how_to_resume(place: Place) -> None:
    ended = place.train()
    before = (place.root / "run/metrics.jsonl").read_bytes()
    assert place.train() == ended
    assert "has used its budget (6 steps): nothing to do" in place.said.getvalue()
    assert "train.steps=12" in place.said.getvalue()
    assert (place.root / "run/metrics.jsonl").read_bytes() == before


def test_a_run_killed_after_its_last_step_is_still_finished(place: Place) -> None:
    ended = place.train()
    text = (place.root / "run/metrics.jsonl").read_text(encoding="utf-8")
    for name in ("finished.json", "README.md"):
        (place.root / "run" / name).unlink()
    again = place.train()
    assert (again.metrics, again.test) == (ended.metrics, ended.test)
    assert place.facts()["test"] == ended.test
    assert (place.root / "run/README.md").is_file()
    assert (place.root / "run/metrics.jsonl").read_text(encoding="utf-8") == text, "the test was counted twice"


def test_a_start_that_was_killed_is_not_in_the_way(place: Place) -> None:
    half = place.root / "run"
    half.mkdir()
    (half / ".begun").touch()
    (half / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert place.train().step == 6


@pytest.mark.parametrize("what", ["a folder that holds other files", "a file"])
def test_what_is_not_a_run_is_left_alone(place: Place, what: str) -> None:
    theirs = place.root / "run" / "tokenizer.json" if what != "a file" else place.root / "run"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("precious", encoding="utf-8")
    with pytest.raises(MeristemError, match=f"is {what}: choose another folder with --out"):
        place.train()
    assert theirs.read_text(encoding="utf-8") == "precious"


def _hold(path: str, ready: Connection) -> None:
    with RunFolder(Path(path)).hold_lock():
        ready.send("locked")
        ready.recv()


def test_two_processes_cannot_train_in_one_run(place: Place) -> None:
    place.train()
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("fork").Process(target=_hold, args=(str(place.root / "run"), there))
    other.start()
    assert here.recv() == "locked"
    with pytest.raises(MeristemError, match=f"is in use by process {other.pid}, which is training there"):
        place.train("train.steps=12")
    here.send("enough")
    other.join(10)
    assert place.train("train.steps=12").step == 12


def test_shards_that_are_gone_are_made_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = place.root / "cache"
    monkeypatch.setenv("MERISTEM_CACHE", str(cache))
    place.train("train.steps=4", "train.schedule=constant")
    shutil.rmtree(cache)
    assert place.train("train.steps=6", "train.schedule=constant").step == 6


def test_text_that_changed_is_another_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, text = place.root / "cache", place.root / "text.txt"
    monkeypatch.setenv("MERISTEM_CACHE", str(cache))
    lines = [f"The sailor counted {number} boats in the harbour." for number in range(200)]
    text.write_text("\n".join(lines), encoding="utf-8")
    settings = (f"corpus.source={text}", "corpus.document=line")
    place.train("train.steps=4", *settings)
    text.write_text("something else entirely\n" * 3, encoding="utf-8")
    place.train("train.steps=6", *settings)  # the shards it began with are still there
    shutil.rmtree(cache)
    with pytest.raises(MeristemError, match="the text has changed since this run started"):
        place.train("train.steps=8", *settings)


# ------------------------------------------------------------ what is not finite


WILD = (
    "train.learning_rate=1e30",
    "train.warmup=0",
    "train.max_grad_norm=null",
    "train.steps=20",
    "train.evaluate_every=100",
)


def test_steps_that_are_not_finite_are_skipped_counted_and_named_and_five_stop_the_run(place: Place) -> None:
    with pytest.raises(MeristemError, match=r"5 steps in a row were not finite .*train\.learning_rate") as error:
        place.train(*WILD, "train.save_every=1")
    skipped = place.lines("skipped")
    assert len(skipped) == 5
    assert [line["step"] for line in skipped] == list(range(skipped[0]["step"], skipped[0]["step"] + 5))
    assert all(line["samples"] and line["texts"][0].strip() for line in skipped)
    assert place.lines("train")[-1]["skipped"] >= 4
    assert str(place.root / "run/checkpoints") in str(error.value)
    assert "the step is skipped" in place.said.getvalue()
    for step in place.steps():
        assert find_problems(place.root / f"run/checkpoints/step-{step:08d}") == []
    model = load_run(place.root / "run").learner.model
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_no_checkpoint_is_promised_where_none_was_saved(place: Place) -> None:
    with pytest.raises(MeristemError, match="no checkpoint had been saved yet"):
        place.train(*WILD, "train.save_every=1h")


def test_a_few_bad_steps_do_not_stop_a_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches in a row overflow; the steps around them are taken."""
    take = Stepper.train_step

    def poisoned(self: Stepper, step: int, *rest: Any) -> StepResult:
        factor = float("inf") if step in (2, 3) else 1.0
        hook = self.learner.model.backbone.embedding().weight.register_hook(lambda gradient: gradient * factor)
        taken = take(self, step, *rest)
        hook.remove()
        return taken

    monkeypatch.setattr(Stepper, "train_step", poisoned)
    ended = place.train("train.steps=8")
    assert ended.step == 8
    assert [line["step"] for line in place.lines("skipped")] == [3, 4]
    assert place.lines("train")[-1]["skipped"] == 2
    assert [line["step"] for line in place.lines("train") if "loss" in line] == [1, 2, 5, 6, 7, 8]


# ------------------------------------------------------------ a damaged checkpoint


def test_resumes_from_an_older_checkpoint_if_the_newest_is_damaged(place: Place) -> None:
    settings = ("train.save_every=2", "train.schedule=constant", "train.warmup=0", "train.evaluate_every=100")
    place.train("train.steps=6", *settings)
    weights = place.root / "run/checkpoints/step-00000006/model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    weights.write_bytes(damaged)
    place.train("train.steps=8", *settings)
    place.train("train.steps=8", *settings, run="sound")
    assert "step-00000006 is damaged: model.safetensors has changed" in place.said.getvalue()
    assert "Resuming from step 4" in place.said.getvalue()
    assert place.losses() == place.losses("sound")
