"""Reported metrics: regularizers, loss terms without targets, NaN models, ties."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import SOURCE, Case, batches, loop_of, real, stepper_of, steps
from rich.console import Console
from run_factory import RunFactory

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import TokenDataset
from meristem.describe.describe_output import show_description
from meristem.describe.describe_run import describe_run
from meristem.drawing.training_curves import can_draw, draw_curves
from meristem.evaluation.held_out_loss import HeldOutSums, evaluate_held_out
from meristem.inputs.batch import Batch
from meristem.interfaces.objective import Objective, Outcome
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.budget import total_step_flops
from meristem.training.run_logger import RunLogger
from meristem.training.train_state import TrainState

PAIRS = [
    Case([{"name": "mlm", "l1_hidden_states": 0.5}, "nsp"], "bert"),
    Case({"name": "clm", "l1_hidden_states": 0.5}, "gpt2"),
    Case({"name": "bilm", "l1_hidden_states": 0.5}, "elmo"),
    Case({"name": "denoising", "l1_hidden_states": 0.5}, "transformer"),
    Case({"name": "plm", "l1_hidden_states": 0.5}, "xlnet"),
]


def _plain(case: Case) -> Case:
    parts = case.objective if isinstance(case.objective, list) else [case.objective]
    objective_names = [part if isinstance(part, str) else {"name": part["name"]} for part in parts]
    return Case(objective_names if len(objective_names) > 1 else objective_names[0], case.family)


@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_states_held_small_count_in_training_and_never_in_validation(
    case: Case, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    learner, feed, settings = real(case, tokenizer, store, ragged=True)
    (batch,) = batches(feed, 0)
    term = next(name for name in batch.target_counts if name.endswith(".states"))
    assert total_step_flops(learner, SOURCE, [batch]) > 0  # it crashed on rows with padding
    learner.train()
    outcome = learner(SOURCE, batch, {name: max(1, n) for name, n in batch.target_counts.items()})
    axis = batch.inputs.get("present")
    present_tokens = torch.ones_like(batch.inputs[feed.objective.axis]) if axis is None else axis
    assert batch.target_counts[term] == int(present_tokens.sum())
    assert 0 < float(outcome.loss_sums[term].detach()) / batch.target_counts[term] < 5
    measured = evaluate_held_out(learner, SOURCE, feed, max_rows=8).metrics()
    other, plain_feed, _ = real(_plain(case), tokenizer, store, ragged=True)
    other.model.load_state_dict(learner.model.state_dict())
    assert measured["loss"] == pytest.approx(
        evaluate_held_out(other, SOURCE, plain_feed, max_rows=8).metrics()["loss"], rel=1e-5
    )
    assert measured[term] > 0
    assert steps(stepper_of(learner, settings), feed, range(1))[0].terms[term] > 0


def test_what_predicts_nothing_is_none_and_not_perfect() -> None:
    out_sums = HeldOutSums(weights={"mlm": 1.0, "nsp": 1.0})
    out_sums.add(Outcome(loss_sums={"mlm": torch.tensor(0.0), "nsp": torch.tensor(3.0)}), {"mlm": 0, "nsp": 4})
    metrics = out_sums.metrics()
    assert math.isnan(metrics["mlm"]) and math.isnan(metrics["perplexity"]) and metrics["nsp"] == 0.75
    assert math.isnan(metrics["loss"])
    assert math.isnan(HeldOutSums(weights={"mlm": 1.0}).metrics()["loss"])


def test_two_terms_have_a_perplexity_each() -> None:
    out_sums = HeldOutSums(weights={"clm": 1.0, "mlm": 1.0})
    out_sums.add(Outcome(loss_sums={"clm": torch.tensor(2.0), "mlm": torch.tensor(6.0)}), {"clm": 2, "mlm": 2})
    metrics = out_sums.metrics()
    assert metrics["clm.perplexity"] == pytest.approx(math.e) and metrics["mlm.perplexity"] == pytest.approx(math.e**3)
    assert "perplexity" not in metrics


class _Without(Objective):
    """An objective whose rows have nothing to predict, as text whose every token is unknown to the tokenizer."""

    def __init__(self, other: Objective) -> None:
        self.other = other
        self.loss_weights, self.heads, self.name = other.loss_weights, other.heads, other.name

    def prepare(self, row: Any, draw: Any) -> Any:
        row.metadata["special"][:] = True
        return self.other.prepare(row, draw)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        return self.other.count_targets(batch)

    def loss(self, model: Any, hidden: Any, batch: Batch) -> Outcome:
        return self.other.loss(model, hidden, batch)


def test_a_step_that_predicts_nothing_has_no_loss(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store, log_every=1, steps=3, evaluate_every=1,
                                   patience=1)  # fmt: skip
    empty = _Without(learner.objectives[SOURCE])
    learner.objectives[SOURCE] = empty
    object.__setattr__(feed, "objective", empty)
    train_state = TrainState(total=3, budget="3 steps")
    loop = loop_of(tmp_path / "run", stepper_of(learner, settings), feed, settings, train_state,
                   evaluate=lambda: evaluate_held_out(learner, SOURCE, feed, max_rows=4).metrics())  # fmt: skip
    with loop.logger:
        loop.fit()
    assert train_state.step == 3 and train_state.best is None and train_state.stale == 0
    lines = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert all("loss" not in line for line in lines if line["kind"] == "train")
    assert all(line["loss"] is None for line in lines if line["kind"] == "evaluation")
    assert "validation  loss none" in (tmp_path / "run/log.txt").read_text()
    if can_draw():
        draw_curves(tmp_path / "run/metrics.jsonl", tmp_path / "curves.png", title="nothing")


@pytest.mark.parametrize("case", [Case("mlm", "bert"), Case(["mlm", "nsp"], "bert"), Case("clm", "transformer_xl"),
                                  Case("rtd", "electra"), Case("bilm", "elmo"), Case("plm", "xlnet"),
                                  Case("seq2seq", "transformer")], ids=str)  # fmt: skip
def test_a_model_of_nans_is_never_right(case: Case, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = real(case, tokenizer, store)
    for parameter in learner.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    metrics = evaluate_held_out(learner, SOURCE, feed, max_rows=8).metrics()
    shares = {name: value for name, value in metrics.items() if name.endswith((".top1", ".top5", ".accuracy"))}
    assert shares and set(shares.values()) == {0.0}
    assert math.isnan(metrics["loss"])


def test_patience_counts_from_the_first_of_equals(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = real(Case("mlm", "bert"), tokenizer, store, steps=9, evaluate_every=1, patience=3)
    scores = iter([3.0, 2.0, 2.0, 2.5, 2.0, 1.0, 1.0, 1.0, 1.0])
    train_state = TrainState(total=9, budget="9 steps")
    loop = loop_of(tmp_path / "run", stepper_of(learner, settings), feed, settings, train_state,
                   evaluate=lambda: {"loss": next(scores)})  # fmt: skip
    with loop.logger:
        loop.fit()
    assert (train_state.step, train_state.best_step, train_state.best_since) == (5, 5, 2)
    text = (tmp_path / "run/log.txt").read_text()
    assert "validation has not improved in 3 evaluations (the best was at step 2, equalled at step 5)" in text


def test_the_run_logger_writes_json_that_every_reader_accepts(tmp_path: Path) -> None:
    with RunLogger(tmp_path, Console(quiet=True)) as journal:
        journal.write_metrics("evaluation", 1, {"loss": math.nan, "each": [math.inf, 1.0]})
    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert line["loss"] is None and line["each"] == [None, 1.0]


def test_a_run_that_never_took_a_step_is_started_over(run_factory: RunFactory) -> None:
    """A command that failed before its first step left a folder that refused the corrected one."""
    with pytest.raises(MeristemError):  # after the folder was made: no lane gets a token
        run_factory.train(
            "train.batch_tokens=100000000", "dataset.contiguous_batches=true", "model.family=transformer_xl", run="dead"
        )
    assert (run_factory.root / "dead/recipe.yaml").exists()
    result = run_factory.train("train.steps=2", "model.layers=2", run="dead")
    assert result.step == 2 and "never took a step; starting over" in run_factory.output.getvalue()
    with pytest.raises(MeristemError, match="different settings"):
        run_factory.train("train.steps=2", "model.layers=1", run="dead")


def test_a_run_is_described_by_what_it_did(run_factory: RunFactory, capsys: pytest.CaptureFixture[str]) -> None:
    run_factory.train("train.steps=4", "train.evaluate_every=2", run="told")
    recipe = run_factory.root / "told/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("size: 300", "size: 7000"))  # what was asked for is not what became
    run = describe_run(RunFolder(run_factory.root / "told"))
    tokenizer = Tokenizer.load(run_factory.root / "told/tokenizer.json")
    facts = run_factory.facts("told")
    assert run is not None and run.finished and (run.steps, run.planned_steps) == (4, 4)
    assert run.vocabulary == tokenizer.vocab_size < 7000
    assert run.tokens == facts["used"]["tokens"] and run.flops == facts["used"]["flops"] > 0
    assert run.validation["loss"] == run_factory.lines("evaluation", "told")[-1]["loss"]
    assert run.best_step in (2, 4) and run.best_validation["loss"] <= run.validation["loss"]
    assert run.test == facts["test"] and run.started_from is None
    show_description(str(run_factory.root / "told"), [], None, as_json=True)
    payload = json.loads(capsys.readouterr().out)
    assert payload["trained"]["vocabulary"] == payload["vocabulary"] == tokenizer.vocab_size
    show_description(str(run_factory.root / "told"), [], None, as_json=False)
    assert "steps taken" in (output := capsys.readouterr().out) and f"{tokenizer.vocab_size:,} tokens" in output
