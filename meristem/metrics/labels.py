"""Labels and numbers: accuracy, F1, Matthews, Pearson and Spearman, as scikit-learn and SciPy count them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Metrics = dict[str, float]
Numbers = NDArray[np.float64]
Problem = Literal["single", "multiple", "regression"]


def single(golds: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> Metrics:
    """Accuracy, F1 of the second of two labels, macro F1 and Matthews."""
    from sklearn import metrics

    out = {"accuracy": float(metrics.accuracy_score(golds, said))}
    known = list(dict.fromkeys((*labels, *golds)))
    if len(known) == 2:
        out["f1"] = float(metrics.f1_score(golds, said, pos_label=known[1], average="binary", zero_division=0))
    out["f1_macro"] = float(metrics.f1_score(golds, said, labels=known, average="macro", zero_division=0))
    out["matthews"] = float(metrics.matthews_corrcoef(golds, said))
    return out


def several(golds: Sequence[Sequence[str]], said: Sequence[Sequence[str]], labels: Sequence[str]) -> Metrics:
    """Micro and macro F1 over labels, and how often all of a text's labels are right."""
    from sklearn import metrics

    known = list(dict.fromkeys((*labels, *(label for gold in golds for label in gold))))
    gold, answer = (_table(rows, known) for rows in (golds, said))
    return {
        "f1_micro": float(metrics.f1_score(gold, answer, average="micro", zero_division=0)),
        "f1_macro": float(metrics.f1_score(gold, answer, average="macro", zero_division=0)),
        "exact": float(metrics.accuracy_score(gold, answer)),
    }


def numbers(golds: Sequence[float] | Numbers, said: Sequence[float] | Numbers) -> Metrics:
    """Pearson, Spearman, and the mean squared distance; correlations with something constant are 0."""
    from scipy import stats

    gold, answer = np.asarray(golds, np.float64), np.asarray(said, np.float64)
    varied = len(gold) > 1 and np.ptp(gold) > 0 and np.ptp(answer) > 0
    return {
        "pearson": float(stats.pearsonr(gold, answer).statistic) if varied else 0.0,
        "spearman": float(stats.spearmanr(gold, answer).statistic) if varied else 0.0,
        "squared_error": float(((gold - answer) ** 2).mean()),
    }


def resampled(
    problem: Problem, golds: Sequence[Any], said: Sequence[Any], labels: Sequence[str]
) -> Callable[[NDArray[np.int64]], Metrics]:
    """The same numbers on a resampled set."""
    measure = {"single": single, "multiple": several}.get(problem)
    if measure is None:
        gold, answer = np.asarray(golds, np.float64), np.asarray(said, np.float64)
        return lambda at: numbers(gold[at], answer[at])
    return lambda at: measure([golds[i] for i in at], [said[i] for i in at], labels)


def _table(rows: Sequence[Sequence[str]], known: Sequence[str]) -> NDArray[np.int64]:
    place = {label: number for number, label in enumerate(known)}
    out = np.zeros((len(rows), len(known)), np.int64)
    for number, row in enumerate(rows):
        out[number, [place[label] for label in row]] = 1
    return out
