"""Feed-forward network (MLP) of a transformer layer, and activations: GELU, ReLU, SwiGLU, GEGLU."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.fused_linear import FusedLinear

ActivationName = Literal["gelu", "gelu_tanh", "relu", "relu6", "relu2", "swiglu", "geglu", "geglu_erf"]
GATED_ACTIVATIONS = frozenset({"swiglu", "geglu", "geglu_erf"})
"""Activations whose input is a gate and a value, concatenated."""


def activate(name: ActivationName, x: Tensor) -> Tensor:
    """Apply the named activation; a gated one halves the last dimension."""
    match name:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":  # the tanh approximation of GPT-2
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
        case "relu6":
            return F.relu6(x)
        case "relu2":  # Primer (So et al. 2021)
            return F.relu(x).square()
        case "swiglu":
            gate, value = x.chunk(2, -1)
            return F.silu(gate) * value
        case "geglu":  # T5 1.1, with the tanh approximation
            gate, value = x.chunk(2, -1)
            if gate.dtype == torch.bfloat16:  # twice as fast as on every second half of a row
                gate = gate.contiguous()
            return F.gelu(gate, approximate="tanh") * value
        case "geglu_erf":  # ModernBERT, with the exact GELU
            gate, value = x.chunk(2, -1)
            return F.gelu(gate) * value


class FeedForward(nn.Module):
    """Up projection, activation, down projection; a gated activation has an up projection of twice the size."""

    def __init__(self, hidden_size: int, ffn_size: int, activation: ActivationName, *, bias: bool = True) -> None:
        super().__init__()
        self.activation: ActivationName = activation
        self.widen = FusedLinear(hidden_size, (ffn_size,) * (2 if activation in GATED_ACTIVATIONS else 1), bias=bias)
        self.narrow = nn.Linear(ffn_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] → [..., D]."""
        return self.narrow(activate(self.activation, self.widen(x)))  # type: ignore[no-any-return]  # nn.Module.__call__
