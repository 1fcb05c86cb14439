"""Which predictions are right: argmax and rank that count NaN as wrong."""

# N predictions, C classes or words

from __future__ import annotations

from torch import Tensor


def is_correct(scores_NC: Tensor, targets_N: Tensor) -> Tensor:
    """[N] whether the target has the highest score; never where a score is NaN, which argmax would take for it."""
    return (scores_NC.argmax(1) == targets_N) & ~scores_NC.isnan().any(1)


def rank(scores_NC: Tensor, target_scores_N1: Tensor) -> Tensor:
    """[N] how many scores are not at most the target's; NaN never is, so that a NaN model ranks last."""
    return scores_NC.shape[1] - (scores_NC <= target_scores_N1).sum(1)
