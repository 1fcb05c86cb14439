"""How the weights of a stack begin, and which shapes can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

OutputInitial = Literal["normal", "scaled", "zero"]


def normal_weights(module: nn.Module, deviation: float) -> None:
    """Every linear map inside: normal weights, zero biases."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=deviation)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def damp(outputs: Iterable[nn.Linear], how: OutputInitial) -> None:
    """Maps into the residual stream: as they are, scaled by 1/√(their number) (GPT-2), or zero."""
    every = list(outputs)
    factor = {"normal": 1.0, "scaled": len(every) ** -0.5, "zero": 0.0}[how]
    with torch.no_grad():
        for output in every:
            output.weight.mul_(factor)


def refuse_uneven_heads(width: int, heads: int) -> None:
    """Heads share the width in equal parts."""
    if width % heads:
        near = min((h for h in range(1, min(width, 4096) + 1) if width % h == 0), key=lambda h: abs(h - heads))
        raise ValueError(f"heads: {heads} do not divide a width of {width}; {near} would")
