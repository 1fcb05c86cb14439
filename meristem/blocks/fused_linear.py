"""Fused linear layer: several linear layers of one input (queries, keys and values; gate and value) in one product."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


class FusedLinear(nn.Linear):
    """Linear layers of the same input whose weights are stacked by rows; `output_sizes` are the rows of each.

    Muon orthogonalizes the update of each part on its own, as if they were separate matrices.
    """

    def __init__(self, in_features: int, output_sizes: Sequence[int], *, bias: bool = True) -> None:
        super().__init__(in_features, sum(output_sizes), bias=bias)
        self.output_sizes = tuple(output_sizes)
