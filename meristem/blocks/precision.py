"""Numerical precision: promotion of half-precision tensors to float32."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or wider if it is: losses are never summed in half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
