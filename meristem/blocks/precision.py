"""Numerical precision: activations in the autocast dtype, and promotion of half-precision tensors to float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.amp.autocast_mode import is_autocast_available


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or wider if it is: losses are never summed in half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def to_compute_dtype(tensor: Tensor) -> Tensor:
    """The tensor in the dtype of matrix products: bfloat16 under autocast, else unchanged.

    Embeddings apply it, so that the residual stream stays in that dtype: added to a float32 stream, every output of a
    product would be promoted to float32, and cast again before the next product.
    """
    device = tensor.device.type
    if not is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def autocast_disabled(device: torch.device) -> AbstractContextManager[object]:
    """Context without autocast: products keep the precision of their inputs."""
    return torch.autocast(device.type, enabled=False) if is_autocast_available(device.type) else nullcontext()
