"""Normalization layers by name: LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Literal

from torch import nn

NormName = Literal["layer", "rms"]


def build_norm(name: NormName, hidden_size: int, eps: float, *, bias: bool = True) -> nn.Module:
    """A normalization layer over the last dimension."""
    if name == "rms":
        return nn.RMSNorm(hidden_size, eps=eps)
    return nn.LayerNorm(hidden_size, eps=eps, bias=bias)
