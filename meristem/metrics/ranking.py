"""How well scores tell two kinds apart: the area under the ROC curve, from counts that can be summed over batches."""

from __future__ import annotations

import torch
from torch import Tensor

REACH = 20.0  # log-odds beyond ±20 are as good as certain
BINS = 8192  # of 0.005 each: ties inside one move the area by less than 1e-3


def spread(scores_N: Tensor, right_N: Tensor) -> Tensor:
    """[2, bins] how many of the wrong and of the right ones scored in each bin of the log-odds."""
    place_N = ((scores_N.detach() + REACH) * (BINS / (2 * REACH))).long().clamp(0, BINS - 1)
    return torch.bincount(place_N + right_N.long() * BINS, minlength=2 * BINS).view(2, BINS)


def area(counts: Tensor) -> float:
    """The chance that a right one scored above a wrong one, ties counting half; a half where one kind is missing."""
    wrong, right = counts.double()
    pairs = float(wrong.sum() * right.sum())
    if not pairs:
        return 0.5
    below = wrong.cumsum(0) - wrong
    return float((right * (below + wrong / 2)).sum()) / pairs
