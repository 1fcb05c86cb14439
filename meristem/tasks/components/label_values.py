"""Gold values of classification data: detection of the problem type, parsing of labels, class weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from meristem.config.errors import MeristemError, did_you_mean
from meristem.interfaces.sample import Sample

ProblemType = Literal["single", "multiple", "regression"]
ClassWeights = Literal["none", "balanced"] | dict[str, float]
MAX_NUMBER = 1e30
"""Largest gold or weight: float32 ends at 3.4e38, and differences are squared."""


def detect_problem_type(golds: Sequence[Any]) -> ProblemType:
    """Multi-label for lists, regression for numbers with fractions, else single-label."""
    if any(isinstance(gold, list | tuple) for gold in golds):
        return "multiple"
    try:
        numbers = [float(gold) for gold in golds]
    except (TypeError, ValueError):
        return "single"
    return "regression" if any(number != int(number) for number in numbers if np.isfinite(number)) else "single"


def gold_labels(sample: Sample, problem_type: ProblemType | None, separator: str) -> tuple[str, ...]:
    """The labels of a sample: one, or several from a list or a separated string; empty if the gold is unknown."""
    gold = sample.gold
    if gold is None:
        return ()
    if problem_type != "multiple":
        if isinstance(gold, list | tuple):
            raise MeristemError(
                f"{sample.location}: {gold!r} is a list of labels, but task.problem_type is {problem_type}"
            )
        return (str(gold),)
    parts = gold if isinstance(gold, list | tuple) else str(gold).split(separator)
    return tuple(label for part in parts if (label := str(part).strip()))


def gold_number(sample: Sample) -> float:
    """The gold of a regression sample."""
    try:
        number = float(sample.gold)
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise MeristemError(f"{sample.location}: {sample.gold!r} is not a number, but task.problem_type is regression")
    if abs(number) > MAX_NUMBER:
        raise MeristemError(
            f"{sample.location}: {sample.gold!r} is too large: numbers must be between "
            f"{-MAX_NUMBER:g} and {MAX_NUMBER:g}; correct it, or use logarithms"
        )
    return number


def label_sort_key(label: str) -> tuple[int, float, str]:
    """Sort key: numbers by value, then other labels alphabetically."""
    try:
        number = float(label)
    except ValueError:
        number = float("nan")
    return (1, 0.0, label) if np.isnan(number) else (0, number, label)  # "nan" cannot be ordered among numbers


def resolve_class_weights(
    class_weights: ClassWeights,
    labels: Sequence[str],
    counts: Mapping[str, int],
    num_samples: int,
    problem_type: ProblemType,
) -> ClassWeights:
    """The weight of each label: as given, or balanced so that all labels have the same total weight.

    For multi-label problems, balanced gives positive and negative examples of a label the same total weight.
    """
    if isinstance(class_weights, dict):
        for label, weight in class_weights.items():
            if label not in labels:
                raise MeristemError(f"task.class_weights.{label}: no such label{did_you_mean(label, labels)}")
            if not weight > 0:
                raise MeristemError(f"task.class_weights.{label}: {weight} is not above 0")
            if weight > MAX_NUMBER:
                raise MeristemError(f"task.class_weights.{label}: {weight} is above {MAX_NUMBER:g}")
    if class_weights != "balanced":
        return class_weights
    seen = {label: max(1, counts.get(label, 0)) for label in labels}
    if problem_type == "multiple":
        return {label: max(1, num_samples - seen[label]) / seen[label] for label in labels}
    return {label: num_samples / (len(labels) * seen[label]) for label in labels}


def unseen_label_warnings(
    kind: str, known: Container[str], golds: Iterable[tuple[str, str]], unit: str = "sample"
) -> list[str]:
    """A warning for each label among (label, location) that does not occur in the training data."""
    locations: dict[str, list[str]] = {}
    for label, location in golds:
        if label not in known:
            locations.setdefault(label, []).append(location)
    return [
        f"{places[0]}: the {kind} {label!r} does not occur in the training data; its {len(places):,} "
        f"{unit}{'s' * (len(places) > 1)} cannot be predicted correctly"
        for label, places in locations.items()
    ]


def count_labels(
    samples: Sequence[Sample], problem_type: ProblemType, separator: str, labels: Sequence[str]
) -> Counter[str]:
    """Counts of the labels; raises with the location of a label that is not in task.labels."""
    label_counts: Counter[str] = Counter()
    known = frozenset(labels)
    for sample in samples:
        for label in gold_labels(sample, problem_type, separator):
            if known and label not in known:
                raise MeristemError(
                    f"{sample.location}: the label {label!r} is not among task.labels{did_you_mean(label, labels)}"
                )
            label_counts[label] += 1
    return label_counts
