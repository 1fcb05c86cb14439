"""Answers taken from a passage, as SQuAD counts them: exact match and F1 over words, the best of several golds."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from meristem.metrics.bootstrap import totals
from meristem.metrics.words import unspaced, words
from meristem.task import Indices, Metrics

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space (Rajpurkar et al. 2016, §6.1).

    A text with ideographs or kana loses the punctuation of every script, and its characters stand apart.
    """
    text = text.lower()
    if unspaced(text):
        text = "".join(letter for letter in text if unicodedata.category(letter)[0] not in "PS")
        return " ".join(words(text))
    return " ".join(_ARTICLE.sub(" ", text.translate(_PUNCTUATION)).split())


def compared(gold: str, said: str) -> tuple[float, float]:
    """Whether two answers are the same, and their F1: words in common, each as often as both have it."""
    golds, answers = normalised(gold).split(), normalised(said).split()
    exact = float(golds == answers)
    if not golds or not answers:
        return exact, exact
    common = sum((Counter(golds) & Counter(answers)).values())
    if not common:
        return exact, 0.0
    precision, recall = common / len(answers), common / len(golds)
    return exact, 2 * precision * recall / (precision + recall)


def score(golds: Sequence[Sequence[str]], said: Sequence[str]) -> Metrics:
    """exact and f1; where some questions have no answer (gold is empty, `""` says so) also both kinds by themselves."""
    return resampled(golds, said)(np.arange(len(golds)))


def resampled(golds: Sequence[Sequence[str]], said: Sequence[str]) -> Callable[[Indices], Metrics]:
    """The same numbers on a resampled set, from those of each question."""
    each = np.array([_best(gold, answer) for gold, answer in zip(golds, said, strict=True)], np.float64).reshape(-1, 2)
    answered = np.array([len(gold) > 0 for gold in golds], bool)
    table = np.column_stack([each, each[:, 1] * answered, answered, each[:, 0] * ~answered, ~answered])

    def measure(at: Indices) -> Metrics:
        exact, f1, has_f1, has, none_right, none = map(float, totals(table, at))
        found = {"exact": exact / (len(at) or 1), "f1": f1 / (len(at) or 1)}
        if not answered.all():
            found["has_answer_f1"] = has_f1 / (has or 1.0)
            found["no_answer_accuracy"] = none_right / (none or 1.0)
        return found

    return measure


def support(golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """How many questions have an answer, and how many have none."""
    answered = sum(len(gold) > 0 for gold in golds)
    return {"has_answer_f1": float(answered), "no_answer_accuracy": float(len(golds) - answered)}


def baselines(golds: Sequence[Sequence[str]]) -> dict[str, Metrics]:
    """What saying nothing would reach."""
    return {"no answer to anything": score(golds, [""] * len(golds))}


def _best(golds: Sequence[str], said: str) -> tuple[float, float]:
    pairs = [compared(gold, said) for gold in golds or ("",)]
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)
