"""Scalar mix (ELMo): a learned weighted sum of all layers (Peters et al. 2018, eq. 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from meristem.config.errors import MeristemError


class ScalarMix(nn.Module):
    """γ Σ s_j h_j with s = softmax(w)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Layers of one shape [..., D] → [..., D]."""
        if len(layers) != len(self.shares):
            raise MeristemError(
                f'a scalar mix of {len(self.shares)} layers got {len(layers)}; call the backbone with want=("layers",)'
            )
        weights = self.scale * self.shares.softmax(0)
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = torch.addcmul(mixed, weight, layer)
        return mixed
