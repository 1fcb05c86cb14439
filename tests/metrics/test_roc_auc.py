"""ROC AUC from histograms, against counting all pairs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from meristem.metrics.roc_auc import BINS, MAX_LOG_ODDS, roc_auc, score_histogram


def by_pairs(scores: Tensor, right: Tensor) -> float:
    """Every right one beside every wrong one."""
    difference = scores[right][:, None] - scores[~right][None]
    return float((difference > 0).double().mean() + (difference == 0).double().mean() / 2)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1.0, 1.0), (-0.5, 3.0), (0.05, 0.05), (8.0, 4.0)])
def test_the_area_is_the_share_of_pairs_in_order(shift: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    right = torch.rand(3000, generator=generator) < 0.15
    scores = torch.randn(3000, generator=generator) * scale - 2 + shift * right
    assert roc_auc(score_histogram(scores, right)) == pytest.approx(by_pairs(scores, right), abs=1e-3)


def test_batches_sum_up_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(2)
    scores, right = torch.randn(999, generator=generator), torch.rand(999, generator=generator) < 0.3
    parts = [score_histogram(s, r) for s, r in zip(scores.split(100), right.split(100), strict=True)]
    assert torch.equal(torch.stack(parts).sum(0), score_histogram(scores, right))


def test_extremes() -> None:
    right = torch.tensor([False, False, True, True])
    assert roc_auc(score_histogram(torch.tensor([-1e9, -3.0, 3.0, 1e9]), right)) == 1.0
    assert roc_auc(score_histogram(torch.tensor([3.0, 1e9, -3.0, -1e9]), right)) == 0.0
    assert roc_auc(score_histogram(torch.zeros(4), right)) == 0.5
    assert roc_auc(score_histogram(torch.tensor([1.0, 2.0]), torch.tensor([True, True]))) == 0.5
    assert roc_auc(score_histogram(torch.zeros(0), torch.zeros(0, dtype=torch.bool))) == 0.5


def test_scores_fall_into_their_bins() -> None:
    counts = score_histogram(
        torch.tensor([-MAX_LOG_ODDS, 0.0, MAX_LOG_ODDS - 1e-3]), torch.tensor([False, True, False])
    )
    assert counts.shape == (2, BINS)
    assert counts.nonzero().tolist() == [[0, 0], [0, BINS - 1], [1, BINS // 2]]
