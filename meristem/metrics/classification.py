"""Classification and regression metrics: accuracy, F1, Matthews, Pearson and Spearman, as in scikit-learn and SciPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import eq
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.interfaces.task_evaluation import Indices, Metrics

Numbers = NDArray[np.float64]
ClassificationProblem = Literal["single", "multiple", "regression"]
ResampledMetrics = Callable[[Indices], Metrics]


def single_label_metrics(golds: Sequence[str], predictions: Sequence[str], labels: Sequence[str]) -> Metrics:
    """Accuracy, F1 of the second of two labels, macro F1 over labels that occur, and Matthews (0 for one label)."""
    metrics = _sklearn_metrics()
    result = {"accuracy": float(metrics.accuracy_score(golds, predictions))}
    all_labels = _all_labels(golds, labels)
    if len(all_labels) == 2:
        result["f1"] = float(
            metrics.f1_score(golds, predictions, pos_label=all_labels[1], average="binary", zero_division=0)
        )
    result["f1_macro"] = float(metrics.f1_score(golds, predictions, average="macro", zero_division=0))
    result["matthews"] = _matthews(golds, predictions)
    return result


def _matthews(golds: Sequence[str], predictions: Sequence[str]) -> float:
    """Matthews correlation from counts per label: scikit-learn builds a full confusion matrix."""
    gold_counts, predicted_counts = Counter(golds), Counter(predictions)
    correct, size = sum(map(eq, golds, predictions)), len(golds)
    denominator_sq = (size**2 - sum(n * n for n in gold_counts.values())) * (
        size**2 - sum(n * n for n in predicted_counts.values())
    )
    expected_matches = sum(count * predicted_counts[label] for label, count in gold_counts.items())
    return float((correct * size - expected_matches) / np.sqrt(float(denominator_sq))) if denominator_sq else 0.0


def multi_label_metrics(
    golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], labels: Sequence[str]
) -> Metrics:
    """Micro and macro F1 over all labels, and the share of samples with all labels right."""
    metrics = _sklearn_metrics()
    all_labels = _all_labels([label for gold in golds for label in gold], labels)
    gold, prediction = (_label_matrix(rows, all_labels) for rows in (golds, predictions))
    return {
        "f1_micro": float(metrics.f1_score(gold, prediction, average="micro", zero_division=0)),
        "f1_macro": float(metrics.f1_score(gold, prediction, average="macro", zero_division=0)),
        "exact": float(metrics.accuracy_score(gold, prediction)),
    }


def regression_metrics(golds: Sequence[float] | Numbers, predictions: Sequence[float] | Numbers) -> Metrics:
    """Pearson, Spearman and mean squared error; correlations with a constant are 0."""
    try:
        from scipy import stats
    except ImportError:
        raise MeristemError('correlations need SciPy: pip install "meristem-lm[metrics]"') from None
    gold, prediction = np.asarray(golds, np.float64), np.asarray(predictions, np.float64)
    is_varied = _is_varied(gold, prediction)
    return {
        "pearson": float(stats.pearsonr(gold, prediction).statistic) if is_varied else 0.0,
        "spearman": float(stats.spearmanr(gold, prediction).statistic) if is_varied else 0.0,
        "squared_error": float(((gold - prediction) ** 2).mean()),
    }


def resampler(
    problem: ClassificationProblem, golds: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]
) -> ResampledMetrics:
    """The same metrics as a function of resampled indices, computed from counts."""
    if problem == "regression":
        return _regression_resampler(np.asarray(golds, np.float64), np.asarray(predictions, np.float64))
    return (_single_label_resampler if problem == "single" else _multi_label_resampler)(golds, predictions, labels)


def support(golds: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """Samples behind each F1: those of the second of two labels; for macro F1 an effective sample size."""
    gold_counts, all_labels = Counter(golds), _all_labels(golds, labels)
    macro = len(gold_counts) ** 2 / sum(1 / count for count in gold_counts.values()) if gold_counts else 0.0
    return {"f1_macro": macro, **({"f1": float(gold_counts[all_labels[1]])} if len(all_labels) == 2 else {})}


def baselines(
    problem: ClassificationProblem, train: Sequence[Any], golds: Sequence[Any], labels: Sequence[str]
) -> dict[str, Metrics]:
    """Metrics of always predicting the most common label or label set, or the mean, of the training data."""
    if problem == "regression":
        mean = float(np.mean(train))
        return {f"always {mean:.3g} (the mean)": regression_metrics(golds, [mean] * len(golds))}
    if problem == "multiple":
        label_set = Counter(tuple(sorted(gold)) for gold in train).most_common(1)[0][0]
        return {
            f"always {', '.join(label_set) or 'no label'} (the commonest)": multi_label_metrics(
                golds, [label_set] * len(golds), labels
            )
        }
    label = Counter(train).most_common(1)[0][0]
    return {f"always {label} (the commonest)": single_label_metrics(golds, [label] * len(golds), labels)}


def _single_label_resampler(
    golds: Sequence[str], predictions: Sequence[str], labels: Sequence[str]
) -> ResampledMetrics:
    all_labels = _all_labels(golds, labels)
    names = sorted({*all_labels, *predictions})  # scikit-learn's order, so that sums round the same way
    label_index = {label: index for index, label in enumerate(names)}
    gold, prediction = (np.array([label_index[label] for label in values], np.int64) for values in (golds, predictions))
    positive = label_index[all_labels[1]] if len(all_labels) == 2 else None

    def measure(indices: Indices) -> Metrics:
        correct = np.bincount(gold[indices][gold[indices] == prediction[indices]], minlength=len(names)).astype(
            np.float64
        )
        actual, predicted = (
            np.bincount(values[indices], minlength=len(names)).astype(np.float64) for values in (gold, prediction)
        )
        f1, occurs = _f1(correct, actual, predicted), actual + predicted > 0
        result = {"accuracy": float(correct.sum() / len(indices))}
        if positive is not None:
            result["f1"] = float(f1[positive])
        result["f1_macro"] = float(np.average(f1[occurs]))
        denominator_sq = (len(indices) ** 2 - actual @ actual) * (len(indices) ** 2 - predicted @ predicted)
        result["matthews"] = (
            float((correct.sum() * len(indices) - actual @ predicted) / np.sqrt(denominator_sq))
            if denominator_sq
            else 0.0
        )
        return result

    return measure


def _multi_label_resampler(
    golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], labels: Sequence[str]
) -> ResampledMetrics:
    all_labels = _all_labels([label for gold in golds for label in gold], labels)
    rows = [({*gold}, {*prediction}) for gold, prediction in zip(golds, predictions, strict=True)]
    correct_labels = [gold & prediction for gold, prediction in rows]
    entries = [_label_entries(values, all_labels) for values in (correct_labels, golds, predictions)]
    exact = np.array([gold == prediction for gold, prediction in rows], np.float64)

    def measure(indices: Indices) -> Metrics:
        row_counts = np.bincount(indices, minlength=len(rows)).astype(np.float64)
        sums = (np.bincount(label, row_counts[sample], len(all_labels)) for sample, label in entries)
        correct, actual, predicted = (values.astype(np.float64) for values in sums)
        micro = _f1(*(values.sum(keepdims=True) for values in (correct, actual, predicted)))
        return {
            "f1_micro": float(micro[0]),
            "f1_macro": float(np.average(_f1(correct, actual, predicted))),
            "exact": float(row_counts @ exact / len(indices)),
        }

    return measure


def _regression_resampler(gold: Numbers, prediction: Numbers) -> ResampledMetrics:
    value_ids = [np.unique(values, return_inverse=True)[1] for values in (gold, prediction)]
    squared_errors = (gold - prediction) ** 2

    def measure(indices: Indices) -> Metrics:
        is_varied = _is_varied(gold[indices], prediction[indices])
        return {
            "pearson": _pearson(gold[indices], prediction[indices]) if is_varied else 0.0,
            "spearman": _spearman(*(values[indices] for values in value_ids)) if is_varied else 0.0,
            "squared_error": float(squared_errors[indices].mean()),
        }

    return measure


def _pearson(gold: Numbers, prediction: Numbers) -> float:
    from scipy import stats

    return float(stats.pearsonr(gold, prediction).statistic)


def _spearman(gold: Indices, prediction: Indices) -> float:
    """Spearman correlation of values given as indices into their sorted unique values, which avoids resorting."""
    return float(np.corrcoef(_ranks(gold), _ranks(prediction))[1, 0])


def _ranks(value_ids: Indices) -> Numbers:
    """Ranks from 1; ties get their mean rank."""
    counts = np.bincount(value_ids)
    mean_ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[value_ids]
    return mean_ranks


def _f1(correct: Numbers, actual: Numbers, predicted: Numbers) -> Numbers:
    """2 · correct / (actual + predicted), 0 where neither occurs."""
    total = actual + predicted
    return np.divide(2.0 * correct, total, out=np.zeros_like(total), where=total > 0)


def _is_varied(gold: Numbers, prediction: Numbers) -> bool:
    return bool(len(gold) > 1 and np.ptp(gold) > 0 and np.ptp(prediction) > 0)


def _all_labels(golds: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The labels of the training data, then those that occur only here."""
    return list(dict.fromkeys((*labels, *golds)))


def _label_entries(rows: Sequence[Collection[str]], known: Sequence[str]) -> tuple[Indices, Indices]:
    """The labels of samples in COO form (sample index, label index): a dense matrix would be mostly zeros."""
    label_index = {label: index for index, label in enumerate(known)}
    entries = [(index, label_index[label]) for index, row in enumerate(rows) for label in {*row}]
    samples, labels = np.array(entries, np.int64).reshape(-1, 2).T
    return samples, labels


def _label_matrix(rows: Sequence[Sequence[str]], known: Sequence[str]) -> Any:
    """[samples, labels], sparse."""
    from scipy.sparse import csr_matrix  # scikit-learn needs it too

    entries = _label_entries(rows, known)
    return csr_matrix((np.ones(len(entries[0]), np.int64), entries), shape=(len(rows), len(known)))


def _sklearn_metrics() -> Any:
    try:
        from sklearn import metrics
    except ImportError:
        raise MeristemError('accuracy and F1 need scikit-learn: pip install "meristem-lm[metrics]"') from None
    return metrics
