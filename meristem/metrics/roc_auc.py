"""ROC AUC from histograms of scores, which can be summed over batches."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_ODDS = 20.0  # log-odds beyond ±20 are practically certain
BINS = 8192  # of 0.005 each: ties inside one change the area by less than 1e-3


def score_histogram(scores_N: Tensor, is_positive_N: Tensor) -> Tensor:
    """[2, bins] histograms of the log-odds of negatives and positives."""
    bin_N = ((scores_N.detach() + MAX_LOG_ODDS) * (BINS / (2 * MAX_LOG_ODDS))).long().clamp(0, BINS - 1)
    return torch.bincount(bin_N + is_positive_N.long() * BINS, minlength=2 * BINS).view(2, BINS)


def roc_auc(counts: Tensor) -> float:
    """The probability that a positive scores above a negative, ties counting half; 0.5 where one class is missing."""
    negatives, positives = counts.double()
    pairs = float(negatives.sum() * positives.sum())
    if not pairs:
        return 0.5
    below = negatives.cumsum(0) - negatives
    return float((positives * (below + negatives / 2)).sum()) / pairs
