"""Layer norm and root-mean-square norm by name."""

from __future__ import annotations

from typing import Literal

from torch import nn

NormName = Literal["layer", "rms"]


def norm(name: NormName, width: int, epsilon: float, *, bias: bool = True) -> nn.Module:
    """A norm over the last dimension."""
    if name == "rms":
        return nn.RMSNorm(width, eps=epsilon)
    return nn.LayerNorm(width, eps=epsilon, bias=bias)
