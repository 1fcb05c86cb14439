"""Layers weighed against each other, a weight for each and one for all (Peters et al. 2018, eq. 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from meristem.errors import MeristemError


class ScalarMix(nn.Module):
    """γ Σ s_j h_j, the s_j made a distribution by softmax."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Layers of one shape [..., D] → [..., D]."""
        if len(layers) != len(self.shares):
            raise MeristemError(
                f"a mix of {len(self.shares)} layers was given {len(layers)}; ask the backbone for them with "
                'want=("layers",)'
            )
        weights = self.scale * self.shares.softmax(0)
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = torch.addcmul(mixed, weight, layer)
        return mixed
