"""Confident learning (Northcutt et al. 2021): wrong labels from out-of-sample probabilities, and the noise matrix.

A sample counts as confidently of label j if its probability of j is at least the mean probability of j over the
samples that have this label. The counts of (given label, confident label) estimate how often each label is another.

1. Thresholds: the mean probability of each label over the samples that carry it.
2. Confident joint: for each sample the most probable label above its threshold, counted by the given label.
3. Calibration: rows are scaled to the number of samples with each given label.
4. Suspects: for each pair of labels as many samples as the joint says, those with the largest margin (prune by noise
   rate), ranked by the margin.

Written here because the reference implementation, cleanlab, brings pandas and is larger than the method; the numbers of
its paper's example are in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float64]
"""[samples, labels]"""
LabelIds = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NoiseEstimate:
    """What confident learning says about the labels of a data set."""

    joint: NDArray[np.float64]
    """[given, true]: estimated share of all samples."""
    margins: NDArray[np.float64]
    """[samples]: probability of the best other label minus that of the given one; high is suspicious."""
    suggested: LabelIds
    """[samples]: the best other label."""
    suspects: LabelIds
    """Indices of the samples whose label is probably wrong, most suspicious first."""

    @property
    def noise_rate(self) -> float:
        """Estimated share of wrong labels."""
        return float(1.0 - np.trace(self.joint))


def estimate_noise(probabilities: Probabilities, given: LabelIds) -> NoiseEstimate:
    """The joint of given and true labels, and the samples whose label is probably wrong."""
    num_samples, num_labels = probabilities.shape
    joint = calibrated_joint(probabilities, given)
    rows = np.arange(num_samples)
    others = probabilities.copy()
    others[rows, given] = -1.0
    suggested: LabelIds = others.argmax(1).astype(np.int64)
    margins = others.max(1) - probabilities[rows, given]
    suspects: set[int] = set()
    for given_label in range(num_labels):
        members = np.flatnonzero(given == given_label)
        for true_label in range(num_labels):
            count = round(float(joint[given_label, true_label]) * num_samples)
            if true_label != given_label and count and len(members):
                pair_margins = probabilities[members, true_label] - probabilities[members, given_label]
                ranked = members[np.argsort(-pair_margins, kind="stable")[:count]]
                suspects.update(
                    index
                    for index in ranked.tolist()
                    if probabilities[index, true_label] > probabilities[index, given_label]
                )
    ordered = sorted(suspects, key=lambda index: (-margins[index], index))
    return NoiseEstimate(joint=joint, margins=margins, suggested=suggested, suspects=np.array(ordered, np.int64))


def confident_joint(probabilities: Probabilities, given: LabelIds) -> NDArray[np.int64]:
    """[given, confident]: counts of samples by their given label and the label that they are confidently of."""
    num_labels = probabilities.shape[1]
    thresholds = np.array(
        [
            probabilities[given == label, label].mean() if (given == label).any() else np.inf
            for label in range(num_labels)
        ]
    )
    above = probabilities >= thresholds - 1e-9  # the mean of equal numbers may be above them by rounding
    confident = np.where(above, probabilities, -1.0).argmax(1)
    counted = above.any(1)
    joint = np.zeros((num_labels, num_labels), np.int64)
    np.add.at(joint, (given[counted], confident[counted]), 1)
    return joint


def calibrated_joint(probabilities: Probabilities, given: LabelIds) -> NDArray[np.float64]:
    """[given, true]: the confident joint with the given labels in their true shares; sums to 1."""
    joint = confident_joint(probabilities, given).astype(np.float64)
    counts = np.bincount(given, minlength=len(joint)).astype(np.float64)
    empty = joint.sum(1) == 0
    joint[empty, empty] = 1.0  # no confident sample: taken as right
    scaled: NDArray[np.float64] = joint / joint.sum(1, keepdims=True) * counts[:, None]
    scaled /= scaled.sum()
    return scaled


def noise_matrix(joint: NDArray[np.float64]) -> NDArray[np.float64]:
    """[given, true] → p(true label | given label); rows sum to 1."""
    totals = joint.sum(1, keepdims=True)
    matrix: NDArray[np.float64] = np.divide(joint, totals, out=np.zeros_like(joint), where=totals > 0)
    return matrix
