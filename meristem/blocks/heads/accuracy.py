"""Accuracy of predictions: argmax and rank that count NaN as wrong."""

# N predictions, C classes or tokens

from __future__ import annotations

from torch import Tensor


def is_correct(scores_NC: Tensor, targets_N: Tensor) -> Tensor:
    """[N] whether the target has the highest score; false where a score is NaN, which argmax treats as the maximum."""
    return (scores_NC.argmax(1) == targets_N) & ~scores_NC.isnan().any(1)


def target_rank(scores_NC: Tensor, target_scores_N1: Tensor) -> Tensor:
    """[N] number of scores that are not ≤ the target's: 0 is best; NaN never is ≤, so a NaN model ranks last."""
    return scores_NC.shape[1] - (scores_NC <= target_scores_N1).sum(1)
