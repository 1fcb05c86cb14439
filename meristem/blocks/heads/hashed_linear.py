"""Linear model of hashed sparse features: the wide part of a wide and deep model (Cheng et al. 2016)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HashedLinear(nn.Module):
    """Logits of rows from their active features: a weight for each bucket and class, at first 0.

    The weights are multiplied by `scale`, which is their learning rate relative to that of other weights: an adaptive
    optimizer moves every weight by about the learning rate, and weights of rare features have to become large.
    """

    log_mixture: Tensor
    """[2]: logarithms of the weights of the other logits and of these in the sum that predicts."""

    def __init__(self, num_buckets: int, num_classes: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_buckets, num_classes))
        self.bias = nn.Parameter(torch.zeros(num_classes))
        self.scale = scale
        self.register_buffer("log_mixture", torch.full((2,), 0.5).log())

    def forward(self, buckets: Tensor, feature_weights: Tensor, rows: Tensor, num_rows: int) -> Tensor:
        """Buckets [n], their weights [n] and rows [n] → logits [num_rows, classes]."""
        contributions = F.embedding(buckets, self.weight) * (self.scale * feature_weights)[:, None]
        logits = contributions.new_zeros(num_rows, contributions.shape[1]).index_add(0, rows, contributions)
        return logits + self.bias

    def mix(self, others: Tensor, logits: Tensor) -> Tensor:
        """The weighted sum of two logits."""
        weights = self.log_mixture.exp().to(logits.dtype)
        return weights[0] * others + weights[1] * logits
