"""The position-wise half of a layer."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

ActivationName = Literal["gelu", "gelu_tanh", "relu", "relu6", "swiglu", "geglu"]
GATED = frozenset({"swiglu", "geglu"})
"""Activations whose input is a gate and a value side by side."""


def activate(name: ActivationName, x: Tensor) -> Tensor:
    """The activation of that name."""
    match name:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":  # GPT-2's own approximation
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
        case "relu6":
            return F.relu6(x)
        case "swiglu":
            gate, value = x.chunk(2, -1)
            return F.silu(gate) * value
        case "geglu":  # T5 1.1, with GPT-2's approximation
            gate, value = x.chunk(2, -1)
            return F.gelu(gate, approximate="tanh") * value


class FeedForward(nn.Module):
    """Widen, activate, narrow; a gated activation widens twice as far."""

    def __init__(self, width: int, inner: int, activation: ActivationName, *, bias: bool = True) -> None:
        super().__init__()
        self.activation: ActivationName = activation
        self.widen = nn.Linear(width, inner * (2 if activation in GATED else 1), bias=bias)
        self.narrow = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] → [..., D]."""
        return self.narrow(activate(self.activation, self.widen(x)))  # type: ignore[no-any-return]  # nn.Module.__call__
