"""Labels and numbers: accuracy, F1, Matthews, Pearson and Spearman, as scikit-learn and SciPy count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import eq
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.task import Indices, Metrics

Numbers = NDArray[np.float64]
Problem = Literal["single", "multiple", "regression"]
Measure = Callable[[Indices], Metrics]


def single(golds: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> Metrics:
    """Accuracy, F1 of the second of two labels, macro F1 over labels that occur, and Matthews, which is 0 for one."""
    metrics = _scikit()
    out = {"accuracy": float(metrics.accuracy_score(golds, said))}
    known = _known(golds, labels)
    if len(known) == 2:
        out["f1"] = float(metrics.f1_score(golds, said, pos_label=known[1], average="binary", zero_division=0))
    out["f1_macro"] = float(metrics.f1_score(golds, said, average="macro", zero_division=0))
    out["matthews"] = _matthews(golds, said)
    return out


def _matthews(golds: Sequence[str], said: Sequence[str]) -> float:
    """Matthews' coefficient from counts per label: scikit-learn makes a table of all labels by all labels."""
    there, told = Counter(golds), Counter(said)
    right, size = sum(map(eq, golds, said)), len(golds)
    spread = (size**2 - sum(n * n for n in there.values())) * (size**2 - sum(n * n for n in told.values()))
    together = sum(times * told[label] for label, times in there.items())
    return float((right * size - together) / np.sqrt(float(spread))) if spread else 0.0


def several(golds: Sequence[Sequence[str]], said: Sequence[Sequence[str]], labels: Sequence[str]) -> Metrics:
    """Micro and macro F1 over all labels, and how often all of a text's labels are right."""
    metrics = _scikit()
    known = _known([label for gold in golds for label in gold], labels)
    gold, answer = (_table(rows, known) for rows in (golds, said))
    return {
        "f1_micro": float(metrics.f1_score(gold, answer, average="micro", zero_division=0)),
        "f1_macro": float(metrics.f1_score(gold, answer, average="macro", zero_division=0)),
        "exact": float(metrics.accuracy_score(gold, answer)),
    }


def numbers(golds: Sequence[float] | Numbers, said: Sequence[float] | Numbers) -> Metrics:
    """Pearson, Spearman, and the mean squared distance; correlations with something constant are 0."""
    try:
        from scipy import stats
    except ImportError:
        raise MeristemError('correlations need SciPy: pip install "meristem[metrics]"') from None
    gold, answer = np.asarray(golds, np.float64), np.asarray(said, np.float64)
    varied = _varied(gold, answer)
    return {
        "pearson": float(stats.pearsonr(gold, answer).statistic) if varied else 0.0,
        "spearman": float(stats.spearmanr(gold, answer).statistic) if varied else 0.0,
        "squared_error": float(((gold - answer) ** 2).mean()),
    }


def resampled(problem: Problem, golds: Sequence[Any], said: Sequence[Any], labels: Sequence[str]) -> Measure:
    """The same numbers on a resampled set, from counts."""
    if problem == "regression":
        return _resampled_numbers(np.asarray(golds, np.float64), np.asarray(said, np.float64))
    return (_resampled_single if problem == "single" else _resampled_several)(golds, said, labels)


def support(golds: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """What F1 is a mean over: of the second of two labels its samples; macro, as many as vary like the labels' mean."""
    times, known = Counter(golds), _known(golds, labels)
    macro = len(times) ** 2 / sum(1 / number for number in times.values()) if times else 0.0
    return {"f1_macro": macro, **({"f1": float(times[known[1]])} if len(known) == 2 else {})}


def baselines(
    problem: Problem, train: Sequence[Any], golds: Sequence[Any], labels: Sequence[str]
) -> dict[str, Metrics]:
    """What the commonest label, the commonest set of labels, or the mean of the training data would reach."""
    if problem == "regression":
        mean = float(np.mean(train))
        return {f"always {mean:.3g} (the mean)": numbers(golds, [mean] * len(golds))}
    if problem == "multiple":
        some = Counter(tuple(sorted(gold)) for gold in train).most_common(1)[0][0]
        return {f"always {', '.join(some) or 'no label'} (the commonest)": several(golds, [some] * len(golds), labels)}
    label = Counter(train).most_common(1)[0][0]
    return {f"always {label} (the commonest)": single(golds, [label] * len(golds), labels)}


def _resampled_single(golds: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> Measure:
    known = _known(golds, labels)
    names = sorted({*known, *said})  # scikit-learn's order, so that sums round alike
    place = {label: number for number, label in enumerate(names)}
    gold, answer = (np.array([place[label] for label in some], np.int64) for some in (golds, said))
    second = place[known[1]] if len(known) == 2 else None

    def measure(at: Indices) -> Metrics:
        right = np.bincount(gold[at][gold[at] == answer[at]], minlength=len(names)).astype(np.float64)
        there, told = (np.bincount(some[at], minlength=len(names)).astype(np.float64) for some in (gold, answer))
        f1, seen = _f1(right, there, told), there + told > 0
        out = {"accuracy": float(right.sum() / len(at))}
        if second is not None:
            out["f1"] = float(f1[second])
        out["f1_macro"] = float(np.average(f1[seen]))
        spread = (len(at) ** 2 - there @ there) * (len(at) ** 2 - told @ told)
        out["matthews"] = float((right.sum() * len(at) - there @ told) / np.sqrt(spread)) if spread else 0.0
        return out

    return measure


def _resampled_several(golds: Sequence[Sequence[str]], said: Sequence[Sequence[str]], labels: Sequence[str]) -> Measure:
    known = _known([label for gold in golds for label in gold], labels)
    rows = [({*gold}, {*answer}) for gold, answer in zip(golds, said, strict=True)]
    right_labels = [gold & answer for gold, answer in rows]
    pairs = [_label_places(some, known) for some in (right_labels, golds, said)]
    exact = np.array([gold == answer for gold, answer in rows], np.float64)

    def measure(at: Indices) -> Metrics:
        times = np.bincount(at, minlength=len(rows)).astype(np.float64)
        sums = (np.bincount(label, times[sample], len(known)) for sample, label in pairs)
        right, there, told = (some.astype(np.float64) for some in sums)
        micro = _f1(*(some.sum(keepdims=True) for some in (right, there, told)))
        return {
            "f1_micro": float(micro[0]),
            "f1_macro": float(np.average(_f1(right, there, told))),
            "exact": float(times @ exact / len(at)),
        }

    return measure


def _resampled_numbers(gold: Numbers, answer: Numbers) -> Measure:
    places = [np.unique(some, return_inverse=True)[1] for some in (gold, answer)]
    far = (gold - answer) ** 2

    def measure(at: Indices) -> Metrics:
        varied = _varied(gold[at], answer[at])
        return {
            "pearson": _pearson(gold[at], answer[at]) if varied else 0.0,
            "spearman": _spearman(*(some[at] for some in places)) if varied else 0.0,
            "squared_error": float(far[at].mean()),
        }

    return measure


def _pearson(gold: Numbers, answer: Numbers) -> float:
    from scipy import stats

    return float(stats.pearsonr(gold, answer).statistic)


def _spearman(gold: Indices, answer: Indices) -> float:
    """Of values given as places among sorted ones, which spares sorting every resampled set."""
    return float(np.corrcoef(_ranks(gold), _ranks(answer))[1, 0])


def _ranks(places: Indices) -> Numbers:
    """Ranks from 1; equal values share the mean of theirs."""
    times = np.bincount(places)
    shared: Numbers = (np.cumsum(times) - (times - 1) / 2)[places]
    return shared


def _f1(right: Numbers, there: Numbers, told: Numbers) -> Numbers:
    """2 · right / (there + told), 0 where neither occurs."""
    both = there + told
    return np.divide(2.0 * right, both, out=np.zeros_like(both), where=both > 0)


def _varied(gold: Numbers, answer: Numbers) -> bool:
    return bool(len(gold) > 1 and np.ptp(gold) > 0 and np.ptp(answer) > 0)


def _known(golds: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The labels of the training data, then those that only occur here."""
    return list(dict.fromkeys((*labels, *golds)))


def _label_places(rows: Sequence[Collection[str]], known: Sequence[str]) -> tuple[Indices, Indices]:
    """The labels of samples as two columns, the number of the sample and of the label: a table of many is empty."""
    place = {label: number for number, label in enumerate(known)}
    entries = [(number, place[label]) for number, row in enumerate(rows) for label in {*row}]
    samples, labels = np.array(entries, np.int64).reshape(-1, 2).T
    return samples, labels


def _table(rows: Sequence[Sequence[str]], known: Sequence[str]) -> Any:
    """[samples, labels], sparse."""
    from scipy.sparse import csr_matrix  # scikit-learn needs it too

    places = _label_places(rows, known)
    return csr_matrix((np.ones(len(places[0]), np.int64), places), shape=(len(rows), len(known)))


def _scikit() -> Any:
    try:
        from sklearn import metrics
    except ImportError:
        raise MeristemError('accuracy and F1 need scikit-learn: pip install "meristem[metrics]"') from None
    return metrics
