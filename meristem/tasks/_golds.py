"""Golds as files have them, read as a label, several labels or a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from meristem.errors import MeristemError, did_you_mean
from meristem.task import Sample

Problem = Literal["single", "multiple", "regression"]
Weights = Literal["none", "balanced"] | dict[str, float]
LARGEST_NUMBER = 1e30
"""Of a gold or a weight: models compute in 32 bits, which end at 3.4e38, and differences are squared."""


def problem_of(golds: Sequence[Any]) -> Problem:
    """Numbers with fractions are a range; anything else is labels."""
    if any(isinstance(gold, list | tuple) for gold in golds):
        return "multiple"
    try:
        numbers = [float(gold) for gold in golds]
    except (TypeError, ValueError):
        return "single"
    return "regression" if any(number != int(number) for number in numbers if np.isfinite(number)) else "single"


def labels_of(sample: Sample, problem: Problem | None, between: str) -> tuple[str, ...]:
    """The labels of a sample: one, or those in its list or in its column; none where its gold is unknown."""
    gold = sample.gold
    if gold is None:
        return ()
    if problem != "multiple":
        if isinstance(gold, list | tuple):
            raise MeristemError(f"{sample.place}: {gold!r} is a list of labels, and task.problem is {problem}")
        return (str(gold),)
    parts = gold if isinstance(gold, list | tuple) else str(gold).split(between)
    return tuple(label for part in parts if (label := str(part).strip()))


def number_of(sample: Sample) -> float:
    """A gold that is a number."""
    try:
        number = float(sample.gold)
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise MeristemError(f"{sample.place}: {sample.gold!r} is not a number, and task.problem is regression")
    if abs(number) > LARGEST_NUMBER:
        raise MeristemError(f"{sample.place}: {sample.gold!r} is too large to learn: numbers reach from "
                            f"{-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}; correct it, or take logarithms")
    return number


def order_of(label: str) -> tuple[int, float, str]:
    """Numbers by size, before words by letters."""
    try:
        number = float(label)
    except ValueError:
        number = float("nan")
    return (1, 0.0, label) if np.isnan(number) else (0, number, label)  # "nan" has no place among numbers


def weights_of(
    asked: Weights, labels: Sequence[str], found: Mapping[str, int], samples: int, problem: Problem
) -> Weights:
    """How much an example of each label counts: as asked, by name; or so that in sum all count the same.

    Where a text may have several labels, having one then counts as much in sum as not having it.
    """
    if isinstance(asked, dict):
        for label, weight in asked.items():
            if label not in labels:
                raise MeristemError(f"task.class_weights.{label}: no such label{did_you_mean(label, labels)}")
            if not weight > 0:
                raise MeristemError(f"task.class_weights.{label}: {weight} is not above 0")
            if weight > LARGEST_NUMBER:
                raise MeristemError(f"task.class_weights.{label}: {weight} is above {LARGEST_NUMBER:g}")
    if asked != "balanced":
        return asked
    seen = {label: max(1, found.get(label, 0)) for label in labels}
    if problem == "multiple":
        return {label: max(1, samples - seen[label]) / seen[label] for label in labels}
    return {label: samples / (len(labels) * seen[label]) for label in labels}


def counted(samples: Sequence[Sample], problem: Problem, between: str, labels: Sequence[str]) -> Counter[str]:
    """How often each label occurs; one that is not among those given is named with its place."""
    found: Counter[str] = Counter()
    known = frozenset(labels)
    for sample in samples:
        for label in labels_of(sample, problem, between):
            if known and label not in known:
                raise MeristemError(
                    f"{sample.place}: the label {label!r} is not among task.labels{did_you_mean(label, labels)}"
                )
            found[label] += 1
    return found
