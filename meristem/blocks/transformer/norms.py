"""Normalization layers by name: LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

NormName = Literal["layer", "rms"]


class RMSNorm(nn.RMSNorm):
    """Root mean square norm; torch fuses it only where its weight has the dtype of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] → [..., D]; the mean is computed in float32."""
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def build_norm(name: NormName, hidden_size: int, eps: float, *, bias: bool = True) -> nn.Module:
    """A normalization layer over the last dimension."""
    if name == "rms":
        return RMSNorm(hidden_size, eps=eps)
    return nn.LayerNorm(hidden_size, eps=eps, bias=bias)
