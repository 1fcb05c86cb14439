"""SQuAD metrics for extractive question answering: exact match and word F1, the best of several golds."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from meristem.data.text_units import is_unspaced, split_words
from meristem.interfaces.task_evaluation import Indices, Metrics
from meristem.metrics.bootstrap import sum_rows

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space (Rajpurkar et al. 2016, §6.1).

    A text with ideographs or kana loses the punctuation of every script and is split into characters.
    """
    text = text.lower()
    if is_unspaced(text):
        text = "".join(character for character in text if unicodedata.category(character)[0] not in "PS")
        return " ".join(split_words(text))
    return " ".join(_ARTICLE.sub(" ", text.translate(_PUNCTUATION)).split())


def exact_and_f1(gold: str, prediction: str) -> tuple[float, float]:
    """Exact match of two answers, and their word F1."""
    gold_words, predicted_words = normalize_answer(gold).split(), normalize_answer(prediction).split()
    exact = float(gold_words == predicted_words)
    if not gold_words or not predicted_words:
        return exact, exact
    common = sum((Counter(gold_words) & Counter(predicted_words)).values())
    if not common:
        return exact, 0.0
    precision, recall = common / len(predicted_words), common / len(gold_words)
    return exact, 2 * precision * recall / (precision + recall)


def score(golds: Sequence[Sequence[str]], predictions: Sequence[str]) -> Metrics:
    """exact and f1; where some questions are unanswerable (empty gold, prediction `""`) also metrics of both kinds."""
    return resampler(golds, predictions)(np.arange(len(golds)))


def resampler(golds: Sequence[Sequence[str]], predictions: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same metrics as a function of resampled indices, from per-question scores."""
    per_question = np.array(
        [_best_over_golds(gold, prediction) for gold, prediction in zip(golds, predictions, strict=True)], np.float64
    ).reshape(-1, 2)
    has_answer = np.array([len(gold) > 0 for gold in golds], bool)
    table = np.column_stack(
        [per_question, per_question[:, 1] * has_answer, has_answer, per_question[:, 0] * ~has_answer, ~has_answer]
    )

    def measure(indices: Indices) -> Metrics:
        exact, f1, answerable_f1, num_answerable, unanswerable_correct, num_unanswerable = map(
            float, sum_rows(table, indices)
        )
        metrics = {"exact": exact / (len(indices) or 1), "f1": f1 / (len(indices) or 1)}
        if not has_answer.all():
            metrics["has_answer_f1"] = answerable_f1 / (num_answerable or 1.0)
            metrics["no_answer_accuracy"] = unanswerable_correct / (num_unanswerable or 1.0)
        return metrics

    return measure


def support(golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Numbers of answerable and of unanswerable questions."""
    num_answerable = sum(len(gold) > 0 for gold in golds)
    return {"has_answer_f1": float(num_answerable), "no_answer_accuracy": float(len(golds) - num_answerable)}


def baselines(golds: Sequence[Sequence[str]]) -> dict[str, Metrics]:
    """Metrics of always predicting no answer."""
    return {"no answer to anything": score(golds, [""] * len(golds))}


def _best_over_golds(golds: Sequence[str], prediction: str) -> tuple[float, float]:
    pairs = [exact_and_f1(gold, prediction) for gold in golds or ("",)]
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)
