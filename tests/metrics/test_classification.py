"""Classification and regression metrics, against scikit-learn and SciPy; resampled values are bit-identical."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from meristem.metrics import classification
from meristem.metrics.bootstrap import confidence_intervals

KINDS = ["two", "many", "one", "several", "numbers", "ties"]


def random_problem(
    kind: str, size: int, seed: int = 0
) -> tuple[classification.ClassificationProblem, list[Any], list[Any], list[str]]:
    """Golds and answers of some kind."""
    rng = np.random.default_rng(seed)
    if kind == "numbers":
        golds = rng.random(size) * 5
        return "regression", golds.tolist(), (golds + rng.standard_normal(size)).tolist(), []
    if kind == "ties":
        return "regression", rng.integers(0, 4, size).tolist(), rng.integers(0, 3, size).tolist(), []
    if kind == "several":
        names = [f"l{number}" for number in range(6)]
        table = rng.random((2, size, 6)) < 0.3
        golds, predictions = (
            [tuple(n for n, yes in zip(names, row, strict=True) if yes) for row in side] for side in table
        )
        return "multiple", golds, predictions, names
    names = {"two": ["no", "yes"], "many": [f"l{number}" for number in range(9)], "one": ["only", "never"]}[kind]
    golds = [names[int(i)] for i in rng.integers(0, 1 if kind == "one" else len(names), size)]
    predictions = [
        names[int(i)] if rng.random() < 0.6 else gold
        for i, gold in zip(rng.integers(0, len(names), size), golds, strict=True)
    ]
    return "single", golds, predictions, names


def scored(
    problem: classification.ClassificationProblem, golds: list[Any], predictions: list[Any], names: list[str]
) -> dict[str, float]:
    if problem == "regression":
        return classification.regression_metrics(golds, predictions)
    return (classification.single_label_metrics if problem == "single" else classification.multi_label_metrics)(
        golds, predictions, names
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_resampled_metrics_are_exact(kind: str, seed: int) -> None:
    problem, golds, predictions, names = random_problem(kind, 97, seed)
    measure = classification.resampler(problem, golds, predictions, names)
    assert measure(np.arange(97)) == scored(problem, golds, predictions, names)
    sample_indices = np.random.default_rng(seed).integers(0, 97, 97)
    picked = scored(problem, [golds[i] for i in sample_indices], [predictions[i] for i in sample_indices], names)
    assert measure(sample_indices) == pytest.approx(picked, abs=1e-12)


@pytest.mark.parametrize("kind", ["two", "many", "several", "numbers"])
def test_a_thousand_draws_of_ten_thousand_take_seconds(kind: str) -> None:
    problem, golds, predictions, names = random_problem(kind, 10_000)
    start = time.process_time()
    confidence_intervals(classification.resampler(problem, golds, predictions, names), 10_000)
    assert time.process_time() - start < 6  # half a second to two here; scikit-learn a thousand times takes fifteen up


def test_a_known_example() -> None:
    metrics = classification.single_label_metrics(["a", "a", "b", "b"], ["a", "b", "b", "b"], ["a", "b"])
    assert metrics == pytest.approx({"accuracy": 0.75, "f1": 0.8, "f1_macro": (2 / 3 + 0.8) / 2, "matthews": 3**-0.5})


def test_labels_that_do_not_occur_are_no_part_of_the_mean() -> None:
    from sklearn.metrics import f1_score

    golds, predictions = ["a", "b", "a"], ["a", "a", "a"]
    metrics = classification.single_label_metrics(golds, predictions, ["a", "b", "c", "d"])
    assert metrics["f1_macro"] == f1_score(golds, predictions, average="macro", zero_division=0)


@pytest.mark.filterwarnings("error")
def test_one_label_alone_is_no_reason_for_a_warning() -> None:
    assert classification.single_label_metrics(["a", "a"], ["a", "a"], ["a", "b"]) == {
        "accuracy": 1.0, "f1": 0.0, "f1_macro": 1.0, "matthews": 0.0
    }  # fmt: skip


def test_a_label_only_in_the_test_counts_as_wrong() -> None:
    metrics = classification.single_label_metrics(["a", "new"], ["a", "a"], ["a", "b"])
    assert metrics["accuracy"] == 0.5
    assert "f1" not in metrics  # three labels now


def test_correlations_with_something_constant_are_nothing() -> None:
    assert classification.regression_metrics([1, 2, 3], [2, 2, 2]) == {
        "pearson": 0.0,
        "spearman": 0.0,
        "squared_error": pytest.approx(2 / 3),
    }
    assert classification.resampler("regression", [1, 2, 3], [3, 2, 1], [])(np.array([1, 1, 1]))["pearson"] == 0.0


def test_several_labels_of_a_text() -> None:
    metrics = classification.multi_label_metrics([("a", "b"), ("c",)], [("a",), ("c",)], ["a", "b", "c"])
    assert metrics == pytest.approx({"f1_micro": 0.8, "f1_macro": 2 / 3, "exact": 0.5})


def test_baselines_predict_the_most_common_label() -> None:
    baselines = classification.baselines("single", ["b", "b", "a"], ["a", "b", "b", "b"], ["a", "b"])
    assert {name: baseline["accuracy"] for name, baseline in baselines.items()} == {"always b (the commonest)": 0.75}
    mean = classification.baselines("regression", [1.0, 2.0], [1.0, 3.0], [])
    assert mean["always 1.5 (the mean)"]["squared_error"] == pytest.approx((0.25 + 2.25) / 2)
    multi_label_baselines = classification.baselines(
        "multiple", [("b", "a"), ("a", "b"), ("c",)], [("a", "b"), ()], ["a", "b", "c"]
    )
    assert multi_label_baselines["always a, b (the commonest)"]["exact"] == 0.5


def test_many_labels_take_memory_by_their_samples() -> None:
    names = [f"l{number}" for number in range(5_000)]  # by the samples 120 MB of whole numbers
    golds, predictions = names[:3_000], [*names[:2_900], *names[:100]]
    tracemalloc.start()
    metrics = classification.single_label_metrics(golds, predictions, names)
    label_tuples = [[(label,) for label in labels] for labels in (golds, predictions)]
    multi_label = classification.multi_label_metrics(*label_tuples, names)
    assert classification.resampler("multiple", *label_tuples, names)(np.arange(3_000)) == pytest.approx(multi_label)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert metrics["accuracy"] == multi_label["exact"] == pytest.approx(29 / 30)
    assert used < 40 << 20


def test_matthews_is_scikit_learns() -> None:
    from sklearn.metrics import matthews_corrcoef

    for kind in ("two", "many"):
        _, golds, predictions, names = random_problem(kind, 500)
        assert classification.single_label_metrics(golds, predictions, names)["matthews"] == pytest.approx(
            matthews_corrcoef(golds, predictions), abs=1e-12
        )
