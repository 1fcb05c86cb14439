"""Task predictions and metrics, and the evaluation of a task run on its own samples and on others."""

from __future__ import annotations

import copy
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runner import Meristem

from meristem import api
from meristem.config.errors import MeristemError
from meristem.evaluation import task_predictions
from meristem.evaluation.task_predictions import MAX_SHOWN_MISTAKES, evaluate_predictions, predict
from meristem.interfaces.sample import Sample

GOOD, BAD = ["fine", "lovely", "bright"], ["poor", "dull", "grey"]
TINY = {
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 32,
    "tokenizer.vocab_size": 200,
    "train.steps": 6,
    "train.batch_samples": 8,
}


def write_samples(path: Path, size: int, seed: int, extra: tuple[str, ...] = ()) -> Path:
    rng = np.random.default_rng(seed)
    lines = ["sentence\tlabel"]
    for _ in range(size):
        label = int(rng.integers(0, 2))
        word = (GOOD if label else BAD)[int(rng.integers(0, 3))]
        lines.append(f"it was {'very ' * int(rng.integers(0, 9))}{word} number {rng.integers(0, 10**6)}\t{label}")
    path.write_text("\n".join([*lines, *extra]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("task")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A classifier, its data beside it."""
    settings = {
        **TINY,
        "data.train": str(write_samples(folder / "train.tsv", 60, 1)),
        "data.test": str(write_samples(folder / "test.tsv", 30, 2, ("odd <b>text</b>\t[/x]",))),
    }
    return api.finetune("classification", settings, out=folder / "run").run


@pytest.fixture(scope="module")
def loaded(run: Path) -> api.LoadedModel:
    return api.load(run)


# ------------------------------------------------------------ answers


def test_batching_changes_no_answer(loaded: api.LoadedModel) -> None:
    samples = [Sample(inputs={"text": f"it was {'very ' * n}fine"}, gold="1") for n in (0, 9, 1, 5, 0, 3)]
    learner = loaded.loaded_run.learner
    predictions = predict(learner, samples)
    single_predictions = [predict(learner, [sample]) for sample in samples]
    for single_prediction, prediction in zip(single_predictions, predictions.predictions, strict=True):
        np.testing.assert_allclose(single_prediction.predictions[0], prediction, atol=1e-5)
    assert predictions.losses["loss"] == pytest.approx(
        np.mean([single_prediction.losses["loss"] for single_prediction in single_predictions]), abs=1e-5
    )


def test_bfloat16_gives_the_answers_of_float32(loaded: api.LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = copy.deepcopy(loaded.loaded_run.learner)
    samples = [Sample(inputs={"text": f"{GOOD[n % 3]} {BAD[n % 2]} number {n}"}) for n in range(200)]
    expected = np.stack(predict(learner, samples).predictions)
    margins = np.abs(expected[:, 0] - expected[:, 1])
    learner.model.bfloat16_min_tokens = 256
    monkeypatch.setattr(task_predictions, "MIN_MARGIN", float(np.median(margins)))
    predictions = np.stack(predict(learner, samples).predictions)
    close = np.all(np.isclose(predictions, expected, rtol=0, atol=1e-6), axis=1)
    assert 0.3 < close.mean() < 0.9  # those with a small margin are computed again
    np.testing.assert_array_equal(predictions.argmax(1), expected.argmax(1))
    np.testing.assert_allclose(predictions, expected, atol=0.01)


def test_the_loss_is_found_without_answers(loaded: api.LoadedModel) -> None:
    samples = [Sample(inputs={"text": "it was fine"}, gold="1")] * 3
    learner = loaded.loaded_run.learner
    quick = predict(learner, samples, with_predictions=False)
    assert quick.predictions == []
    assert quick.losses == predict(learner, samples).losses


def test_without_gold_there_is_no_loss(loaded: api.LoadedModel) -> None:
    predictions = predict(loaded.loaded_run.learner, [Sample(inputs={"text": "it was fine"})])
    assert len(predictions.predictions) == 1 and math.isnan(predictions.losses["loss"])


def test_a_model_of_nans_has_no_answers(loaded: api.LoadedModel) -> None:
    learner = copy.deepcopy(loaded.loaded_run.learner)
    samples = [Sample(inputs={"text": "it was fine"}, gold=label) for label in ("0", "1")]
    torch.nn.init.constant_(learner.model.heads["classification"].score.weight, math.nan)  # type: ignore[arg-type,union-attr]  # the head of this task
    with pytest.raises(MeristemError, match="NaN"):
        predict(learner, samples)
    torch.nn.init.constant_(learner.model.backbone.embedding().weight, math.nan)
    with pytest.raises(MeristemError, match="NaN"):
        predict(learner, [Sample(inputs={"text": "it was fine"})])


def test_predictions_get_all_metrics(loaded: api.LoadedModel) -> None:
    task = loaded.task()
    samples = [Sample(inputs={"text": f"{n}"}, gold="1", location=f"a:{n}") for n in range(40)]
    sure, unsure = np.array([0.9, 0.1], np.float32), np.array([0.4, 0.6], np.float32)
    answers = [sure if n < 30 else unsure for n in range(40)]
    evaluation = evaluate_predictions(task, answers, samples)
    assert evaluation.metrics["accuracy"] == 0.25 and evaluation.num_samples == 40
    low, high = evaluation.intervals["accuracy"]
    assert 0.08 < low < 0.25 < high < 0.45
    assert evaluation.confusion is not None and evaluation.confusion.matrix.tolist() == [[0, 0], [30, 10]]
    assert len(evaluation.mistakes) == MAX_SHOWN_MISTAKES and evaluation.mistakes[0].confidence == pytest.approx(0.9)
    assert evaluate_predictions(task, answers, samples, with_intervals=False).intervals == {}


# ------------------------------------------------------------ what a run leaves behind


def test_a_run_leaves_a_report_and_a_card(run: Path) -> None:
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert report["split"] == "test" and report["samples"] == {"train": 54, "validation": 6, "test": 31}
    assert set(report["intervals"]) == set(report["metrics"])
    baseline = next(iter(report["baselines"]))
    assert baseline.startswith("always ") and 0 < report["baselines"][baseline]["accuracy"] < 1
    assert any("[/x]" in line for line in report["notices"])
    page = (run / "report.html").read_text(encoding="utf-8")
    assert f"{report['metrics']['accuracy']:.4f}" in page and "<b>text" not in page
    card = (run / "README.md").read_text(encoding="utf-8")
    for fact in ("model for classification", "2 labels: `0`, `1`", "95 % interval", "meristem predict", "test.tsv"):
        assert fact in card
    assert f"| accuracy | {report['metrics']['accuracy']:.4f} |" in card
    assert "held out of" in card
    log = (run / "log.txt").read_text(encoding="utf-8")
    assert "classification on 31 test samples" in log and "Confusion matrix" in log


def test_the_reports_numbers_are_the_tests(run: Path) -> None:
    finished = json.loads((run / "finished.json").read_text(encoding="utf-8"))
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert report["metrics"] == {name: finished["test"][name] for name in report["metrics"]}


# ------------------------------------------------------------ measured again


def test_a_run_on_its_own_samples(run: Path, loaded: api.LoadedModel) -> None:
    evaluation = loaded.evaluate()
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert evaluation["samples"] == {"test": 31} and evaluation["task"] == "classification"
    assert {name: evaluation["metrics"][name] for name in report["metrics"]} == report["metrics"]
    assert evaluation["intervals"] == report["intervals"]
    assert evaluation["metrics"]["loss"] > 0
    json.dumps(evaluation)


def test_a_run_on_another_file(folder: Path, loaded: api.LoadedModel) -> None:
    other = write_samples(folder / "other.tsv", 12, 3, ("so so\tmixed", "so la la\tmixed"))
    evaluation = loaded.evaluate(data=str(other))
    assert evaluation["samples"] == {"data": 14} and evaluation["data"] == str(other)
    assert any("other.tsv:14" in line and "'mixed'" in line for line in evaluation["notices"])
    assert loaded.evaluate(data=str(other), limit=5)["samples"] == {"data": 5}


def test_without_a_test_the_held_out_samples_serve(folder: Path) -> None:
    settings = {**TINY, "train.steps": 2, "data.train": str(folder / "train.tsv")}
    result = api.finetune("classification", settings, out=folder / "no_test")
    evaluation = api.load(result.run).evaluate()
    assert evaluation["samples"] == {"validation": 6}
    assert json.loads((result.run / "report.json").read_text(encoding="utf-8"))["split"] == "validation"


def test_data_that_are_gone_are_said(folder: Path, run: Path) -> None:
    moved = folder / "moved"
    shutil.copytree(run, moved)
    recipe = moved / "recipe.yaml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("train.tsv", "gone.tsv"), encoding="utf-8")
    with pytest.raises(MeristemError, match=r"gone\.tsv.*--data FILE"):
        api.load(moved).evaluate()
    assert api.load(moved).evaluate(data=str(folder / "test.tsv"))["samples"] == {"data": 31}


def test_a_task_run_is_not_measured_as_text(loaded: api.LoadedModel) -> None:
    with pytest.raises(MeristemError, match="evaluated by its predictions"):
        loaded.evaluate(pll=True)


def test_the_command_shows_intervals_and_what_is_strange(run: Path, meristem: Meristem) -> None:
    result = meristem("evaluate", run)
    assert result.code == 0
    lines = dict(line.split(maxsplit=1) for line in result.out.splitlines())
    assert list(lines)[:2] == ["loss", "accuracy"] and "95 %:" not in lines["loss"]
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    low, high = report["intervals"]["accuracy"]
    assert lines["accuracy"].split() == [
        f"{report['metrics']['accuracy']:.6g}",
        "95",
        "%:",
        f"{low:.6g}",
        "to",
        f"{high:.6g}",
    ]
    assert "the label '[/x]' does not occur in the training data" in result.err


def test_other_data_are_scored_against_the_column_that_was_learned(
    folder: Path, run: Path, loaded: api.LoadedModel
) -> None:
    """A file without it was silently scored against whatever else looked like labels."""
    other = folder / "other.tsv"
    other.write_text("sentence\tscore\tstars\nit was fine\t0\t1\nit was poor\t1\t0\n", encoding="utf-8")
    assert loaded.recipe.data.label == "label"
    with pytest.raises(MeristemError, match=r"no column 'label'; known: score, .*, stars.*--columns label=COLUMN"):
        loaded.evaluate(data=str(other))
    metrics_by_column = {
        name: loaded.evaluate(data=str(other), columns={"label": name})["metrics"] for name in ("score", "stars")
    }
    assert metrics_by_column["score"]["accuracy"] == pytest.approx(1 - metrics_by_column["stars"]["accuracy"])
    assert api.finetune("classification", {**TINY, "data.train": str(folder / "train.tsv"),
                                           "data.test": str(folder / "test.tsv")}, out=run).run == run  # fmt: skip
