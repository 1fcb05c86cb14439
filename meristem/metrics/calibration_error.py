"""Calibration of probabilities: expected calibration error, the reliability diagram, and accuracy against coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15
"""Bins of equal width, as in Guo et al. 2017."""
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Answers whose probabilities are in one interval."""

    confidence: float
    """Their mean probability."""
    accuracy: float
    answers: int


@dataclass(frozen=True, kw_only=True)
class CoveragePoint:
    """Accuracy on the most confident answers, if all others are left to a person."""

    coverage: float
    """Share of answers that are given."""
    accuracy: float
    threshold: float
    """Probability below which a model abstains at this coverage."""


def reliability_bins(confidences: Sequence[float], correct: Sequence[bool]) -> list[ReliabilityBin]:
    """The bins that hold an answer, from low to high probability."""
    probabilities, is_correct = np.asarray(confidences, np.float64), np.asarray(correct, bool)
    bin_ids: NDArray[np.int64] = np.clip(np.ceil(probabilities * NUM_BINS).astype(np.int64) - 1, 0, NUM_BINS - 1)
    return [
        ReliabilityBin(
            confidence=float(probabilities[bin_ids == bin_id].mean()),
            accuracy=float(is_correct[bin_ids == bin_id].mean()),
            answers=int((bin_ids == bin_id).sum()),
        )
        for bin_id in np.unique(bin_ids).tolist()
    ]


def expected_calibration_error(confidences: Sequence[float], correct: Sequence[bool]) -> float:
    """Mean distance of accuracy and probability over the bins, weighted by their answers; 0 without answers."""
    bins = reliability_bins(confidences, correct)
    total = sum(item.answers for item in bins)
    return sum(item.answers * abs(item.accuracy - item.confidence) for item in bins) / max(1, total)


def coverage_curve(confidences: Sequence[float], correct: Sequence[bool]) -> list[CoveragePoint]:
    """Accuracy at each coverage; answers with equal probability are given or withheld together."""
    if not len(confidences):
        return []
    order = np.argsort(-np.asarray(confidences, np.float64), kind="stable")
    probabilities, is_correct = np.asarray(confidences, np.float64)[order], np.asarray(correct, bool)[order]
    points: dict[int, CoveragePoint] = {}
    for coverage in COVERAGES:
        threshold = probabilities[max(1, round(coverage * len(order))) - 1]
        num_answered = int((probabilities >= threshold).sum())
        points[num_answered] = CoveragePoint(
            coverage=num_answered / len(order),
            accuracy=float(is_correct[:num_answered].mean()),
            threshold=float(threshold),
        )
    return list(points.values())
