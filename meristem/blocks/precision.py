"""How exactly numbers are held where it matters."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(tensor: Tensor) -> Tensor:
    """In float32 at least: half precision is no place for a loss."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
