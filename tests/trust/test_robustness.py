"""The robustness report: on untrained runs of every task, from the command line, in Python and as files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Meristem
from test_cli_tasks import train_task

import meristem as package
from meristem.api import load
from meristem.config.errors import MeristemError, RecipeError
from meristem.evaluation.abstention import withhold_uncertain
from meristem.labelled.load import load_samples
from meristem.labelled.perturbation import PERTURBATIONS, build_perturbation
from meristem.labelled.settings import DataSettings
from meristem.metrics.calibration_error import coverage_curve, expected_calibration_error, reliability_bins
from meristem.trust.robustness.metric_drop import ResampledMetric, metric_drop, resample_metric
from meristem.trust.robustness.run_robustness import perturb_all

pytestmark = pytest.mark.usefixtures("small_peak")
TEXTS = [f"Ada walked from the old harbour to garden {n}, and it was not good." for n in range(12)]


def write_data(folder: Path) -> dict[str, str]:
    """A labelled file for each task that can be measured."""
    files = {
        "classification": "text\tlabel\n" + "".join(f"{t}\t{('bad', 'good')[n % 2]}\n" for n, t in enumerate(TEXTS)),
        "pair": "text\ttext_b\tlabel\n"
        + "".join(f"{t}\tIt rained on {n} days.\t{('bad', 'good')[n % 2]}\n" for n, t in enumerate(TEXTS)),
        "tagging": "\n\n".join("Ada\tB-person\nwalked\tO\nto\tO\nGarden\tB-place\n.\tO" for _ in TEXTS) + "\n",
        "span": json.dumps({"data": [{"paragraphs": [{"context": text, "qas": [
            {"id": str(n), "question": "Where from?", "answers": [{"text": "old harbour", "answer_start": 20}]}]}
            for n, text in enumerate(TEXTS)]}]}),
    }  # fmt: skip
    endings = {"tagging": "conll", "span": "json"}
    paths = {}
    for task, content in files.items():
        path = folder / f"{task}.{endings.get(task, 'tsv')}"
        path.write_text(content, encoding="utf-8")
        paths[task] = str(path)
    return paths


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {task: train_task(folder / task, task) for task in ("classification", "pair", "tagging", "span")}


@pytest.mark.parametrize("task", ["classification", "pair", "tagging", "span"])
def test_every_task_is_measured_under_every_perturbation(
    task: str, runs: dict[str, Path], data: dict[str, str], tmp_path: Path
) -> None:
    report = package.robustness(runs[task], data[task], severities=[0.5], out=tmp_path)
    assert {result.perturbation for result in report.results} == set(PERTURBATIONS)
    skipped = {result.perturbation: result.skipped for result in report.results if result.skipped}
    assert set(skipped) <= {"word_order", "truncation", "homophones", "code_switching", "long_input"} | (
        {"casing", "missing_punctuation"} if task == "tagging" else set()
    )
    if task == "span":
        assert skipped["word_order"] == skipped["truncation"] == "the answer would not stand in the passage any more"
    for result in report.measured:
        low, high = result.drop_interval or (math.nan, math.nan)
        assert 0 < result.changed <= 1 and low <= result.drop + 1e-9 and result.drop <= high + 1e-9
        assert math.isclose(result.drop, report.clean[report.metric] - result.metrics[report.metric])
        assert len(result.examples) == min(5, result.newly_wrong)
    assert all(request.outcome in ("answered", "refused") for request in report.hostile_requests)
    assert {"empty", "only white space"} <= {item.name for item in report.hostile_requests if item.outcome == "refused"}
    written = json.loads((tmp_path / "robustness.json").read_text(encoding="utf-8"))
    assert written["clean"] == dict(report.clean) and written["worst"]["drop"] == report.measured[0].drop
    page = (tmp_path / "robustness.html").read_text(encoding="utf-8")
    assert "worst drop" in page and "<script" not in page.replace("&lt;script", "")
    assert len(report.to_pandas()) == len(list(PERTURBATIONS))


def test_perturbed_samples_are_a_function_of_seed_and_index(data: dict[str, str]) -> None:
    samples = load_samples(data["classification"], DataSettings(), "text")
    perturbation = build_perturbation("keyboard_typos")
    everything = perturb_all(samples, "text", perturbation, "keyboard_typos", 0.5, 3)
    assert perturb_all(samples[:4], "text", perturbation, "keyboard_typos", 0.5, 3) == everything[:4]
    assert perturb_all(samples, "text", perturbation, "keyboard_typos", 0.5, 4) != everything
    assert [sample.gold for sample in everything] == [sample.gold for sample in samples]


def test_the_command_line(runs: dict[str, Path], data: dict[str, str], meristem: Meristem) -> None:
    run, file = runs["classification"], data["classification"]
    command = ("robustness", run, "--data", file, "--out", "report")
    result = meristem(*command, "--only", "casing,truncation", "--severity", "0.4")
    assert result.code == 0 and "truncation*" in result.out and "labels may change with the text" in result.out
    assert "Hostile requests" in result.out and "wrote report/robustness.html" in result.err
    first, second = (
        json.loads(meristem(*command, "--only", "casing", "--severity", "0.4", "--seed", "1", "--json").out)
        for _ in "ab"
    )
    assert {**first, "date": ""} == {**second, "date": ""}  # the same seed, the same numbers
    assert first["seed"] == 1 and [item["perturbation"] for item in first["results"]] == ["casing"]
    for words, message in [
        (("--severity", "2"), "--severity: give numbers above 0 up to 1"),
        (("--severity", "much"), "--severity much: expected numbers separated by commas"),
        (("--only", "casng"), "--only: no perturbation 'casng'; there are casing"),
        (("--limit", "0"), "--limit: give a number of samples of at least 1"),
        (("--tests", "none.jsonl"), "none.jsonl"),
    ]:
        failed = meristem(*command, *words)
        assert failed.code in (1, 2) and message in failed.err
    assert "meristem robustness runs/reviews" in meristem("robustness", "--help").out


def test_a_run_without_a_task_and_a_task_without_a_place_for_noise(tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match=r"cannot be perturbed|no task to predict|is no run|not a run"):
        package.robustness(tmp_path)


TESTS = """\
{"test": "negation", "text": "It is not good.", "expected": "bad"}
{"test": "negation", "text": "It is not bad.", "expected": "good"}
{"test": "names", "texts": ["Ada walked.", "Ada walked."]}
{"test": "names", "texts": ["Ada walked.", "Ada walked.", "Ada walked."]}
{"test": "praise", "texts": ["A garden.", "A garden."], "label": "good", "direction": "rises"}
{"test": "calm", "texts": ["A garden.", "A garden."], "label": "good", "direction": "rises", "tolerance": 0.1}
"""


def test_behaviour_tests_of_ones_own(runs: dict[str, Path], data: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text(TESTS)
    options = {"only": ["casing"], "severities": [0.1]}
    report = package.robustness(runs["classification"], data["classification"], tests=file, **options)
    model = load(runs["classification"])
    right = [model.predict(text)["label"] == label for text, label in
             [("It is not good.", "bad"), ("It is not bad.", "good")]]  # fmt: skip
    results = {result.name: result for result in report.behaviour_tests}
    assert results["negation"].kind == "minimum_functionality" and results["negation"].failures == 2 - sum(right)
    assert results["names"].kind == "invariance" and (results["names"].cases, results["names"].failures) == (2, 0)
    assert results["praise"].failures == 1 and results["calm"].failures == 0  # an equal score has not risen
    assert results["praise"].examples[0].location == f"{file}:5"
    as_yaml = tmp_path / "tests.yaml"
    as_yaml.write_text("- {test: negation, text: It is not good., expected: bad}\n")
    report = package.robustness(runs["classification"], data["classification"], tests=as_yaml, **options)
    assert [result.cases for result in report.behaviour_tests] == [1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":1: broken JSON"),
        ('{"text": "a"}', ":1: expected a mapping with the name of its test"),
        ('{"test": "a", "txt": "b"}', ":1: unknown field 'txt'; there are direction, expected"),
        ('{"test": "a", "texts": ["b"]}', ':1: a test of invariance needs "texts" with two texts'),
        ('{"test": "a", "text": "b", "expected": "fine"}', ":1: the label 'fine' is none of bad, good"),
        ('{"test": "a", "texts": ["b", "c"], "label": "good", "direction": "up"}', "direction 'up'; expected rises or"),
        (
            '{"test": "a", "texts": ["b", "c"], "label": "x", "direction": "rises"}',
            "the label 'x' is none of bad, good",
        ),
        ('{"test": "a", "text": "b", "expected": "good", "tolerance": -1}', "tolerance -1 is no number of at least 0"),
        ('{"test": "a", "text": "", "expected": "good"}', ":1: task classification needs text"),
        ("", "no test cases"),
    ],
)
def test_wrong_behaviour_tests_are_named_with_their_line(
    line: str, message: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text(line + "\n")
    with pytest.raises((MeristemError, RecipeError)) as error:
        package.robustness(runs["classification"], "unused.tsv", tests=file)
    assert message in str(error.value)


# ------------------------------------------------------------ calibration, drops and abstention


def test_calibration_error_of_a_hand_computed_example() -> None:
    confidences, correct = [0.95, 0.95, 0.95, 0.95, 0.55, 0.55], [True, True, True, False, True, False]
    assert math.isclose(expected_calibration_error(confidences, correct), (4 * 0.20 + 2 * 0.05) / 6)
    assert [item.answers for item in reliability_bins(confidences, correct)] == [2, 4]
    assert expected_calibration_error([], []) == 0.0


def test_a_calibrated_model_has_a_small_error_and_gains_by_abstaining() -> None:
    rng = np.random.default_rng(0)
    confidences = rng.uniform(0.5, 1.0, 20_000)
    correct = rng.random(20_000) < confidences
    assert expected_calibration_error(confidences.tolist(), correct.tolist()) < 0.02
    curve = coverage_curve(confidences.tolist(), correct.tolist())
    assert curve[0].coverage == 1.0 and [point.accuracy for point in curve] == sorted(point.accuracy for point in curve)
    assert math.isclose(curve[-1].accuracy, 0.95, abs_tol=0.02) and math.isclose(curve[-1].threshold, 0.9, abs_tol=0.02)
    assert len(coverage_curve([0.5] * 10, [True] * 10)) == 1  # equal answers are given together


def test_the_drop_is_paired() -> None:
    correct = np.random.default_rng(0).random(400) < 0.7
    worse = correct & (np.arange(400) >= 20)

    def resampled(values: np.ndarray) -> ResampledMetric:
        return resample_metric(lambda indices: {"accuracy": float(values[indices].mean())}, "accuracy", 400)

    drop = metric_drop(resampled(correct), resampled(worse))
    assert math.isclose(drop.mean, correct[:20].sum() / 400)
    assert 0 < drop.low < drop.mean < drop.high < 0.07  # unpaired, ± 0.06 would include zero
    none = metric_drop(resampled(correct), resampled(correct))
    assert none.low == none.mean == none.high == 0.0


def test_answers_below_a_probability_are_withheld(runs: dict[str, Path], meristem: Meristem) -> None:
    model = load(runs["classification"])
    certain = model.predict("Ada walked.")
    assert model.predict("Ada walked.", abstain_below=certain["score"]) == certain
    withheld = {"label": "abstain", "score": certain["score"]}
    assert model.predict("Ada walked.", abstain_below=1.0) == withheld
    assert model.predict(["Ada walked."], abstain_below=1.0) == [withheld]
    command = ("predict", runs["classification"], "Ada walked.", "--abstain-below")
    assert meristem(*command, "1", "--json").answers == [withheld]
    assert "abstain" in meristem(*command, "1").out and "abstain" not in meristem(*command, "0.01").out
    assert "give a probability above 0" in meristem(*command, "2").err
    assert "cannot be combined with --top" in meristem(*command, "0.5", "--top", "2").err
    question = ("--question", "Who?", "--passage", "Ada walked.", "--abstain-below", "1")
    assert "abstain" in meristem("predict", runs["span"], *question).out
    tags = [{"entity_group": "person", "score": 0.4, "word": "Ada", "start": 0, "end": 3}]
    assert withhold_uncertain("tags", tags, 0.5)[0]["entity_group"] == "abstain"
