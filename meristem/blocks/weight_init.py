"""Weight initialization of transformer stacks, and the check that heads divide the hidden size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

OutputInit = Literal["normal", "scaled", "zero"]


def init_normal(module: nn.Module, init_std: float) -> None:
    """Initialize every linear layer of a module: normal weights, zero biases."""
    for submodule in module.modules():
        if isinstance(submodule, nn.Linear):
            nn.init.normal_(submodule.weight, std=init_std)
            if submodule.bias is not None:
                nn.init.zeros_(submodule.bias)


def scale_residual_outputs(outputs: Iterable[nn.Linear], output_init: OutputInit) -> None:
    """Initialize output projections into the residual stream: unchanged, scaled by 1/√(their number) (GPT-2), or 0."""
    linears = list(outputs)
    factor = {"normal": 1.0, "scaled": len(linears) ** -0.5, "zero": 0.0}[output_init]
    with torch.no_grad():
        for output in linears:
            output.weight.mul_(factor)


def check_head_count(hidden_size: int, num_heads: int) -> None:
    """Raise if the number of heads does not divide the hidden size."""
    if hidden_size % num_heads:
        nearest = min(
            (candidate for candidate in range(1, min(hidden_size, 4096) + 1) if hidden_size % candidate == 0),
            key=lambda candidate: abs(candidate - num_heads),
        )
        raise ValueError(f"heads: {num_heads} does not divide a hidden size of {hidden_size}; {nearest} does")
