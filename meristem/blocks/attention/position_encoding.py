"""Position encodings: learned and sinusoidal position embeddings, and rotary embeddings (RoPE)."""

# B batch, T tokens, D hidden size, H heads, C channels of one head

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

PositionName = Literal["learned", "sinusoidal", "rotary", "none"]


class SinusoidalPositions(nn.Module):
    """Sines and cosines of geometrically spaced wavelengths (Vaswani et al. 2017, §3.5)."""

    table: Tensor

    def __init__(self, max_length: int, hidden_size: int) -> None:
        super().__init__()
        # in float32, angles of large positions would be off by 1e-5
        channels = torch.arange(0, hidden_size, 2, dtype=torch.float64)
        angle = torch.arange(max_length)[:, None] * torch.exp(channels * (-math.log(10_000.0) / hidden_size))
        table = torch.zeros(max_length, hidden_size)
        table[:, 0::2] = angle.sin()
        table[:, 1::2] = angle.cos()[:, : hidden_size // 2]
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Position ids [...] → vectors [..., D]."""
        return self.table[positions]


def build_position_embedding(name: PositionName, max_length: int, hidden_size: int) -> nn.Module | None:
    """The module whose vectors are added to token embeddings; None for rotary positions and for none."""
    if name == "learned":
        return nn.Embedding(max_length, hidden_size)
    return SinusoidalPositions(max_length, hidden_size) if name == "sinusoidal" else None


class RotaryEmbedding(nn.Module):
    """Rotary position embedding (RoPE): rotates channel pairs by angles proportional to position (Su et al. 2021)."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, max_length: int, head_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        angle = torch.arange(max_length)[:, None] * base ** (-torch.arange(0, head_dim, 2) / head_dim)
        self.register_buffer("cosine", torch.cat([angle.cos(), angle.cos()], -1), persistent=False)
        self.register_buffer("sine", torch.cat([-angle.sin(), angle.sin()], -1), persistent=False)

    def forward(self, x_BTHC: Tensor, positions: Tensor | None) -> Tensor:
        """Rotated queries or keys [B, T, H, C]; positions [B, T] default to 0, 1, 2, …"""
        length = x_BTHC.shape[1]
        if positions is None:
            cosine, sine = self.cosine[None, :length, None], self.sine[None, :length, None]
        else:
            cosine, sine = self.cosine[positions][:, :, None], self.sine[positions][:, :, None]
        rotated: Tensor = _Rotate.apply(  # type: ignore[no-untyped-call]  # autograd is untyped
            x_BTHC, cosine.to(x_BTHC.dtype), sine.to(x_BTHC.dtype)
        )
        return rotated


class _Rotate(torch.autograd.Function):
    """x·cos + swap(x)·sin in two passes; the gradient of a rotation is the inverse rotation."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return torch.addcmul(x * cosine, x.roll(x.shape[-1] // 2, -1), sine)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors  # type: ignore[attr-defined]  # set in forward
        (grad,) = grads
        return torch.addcmul(grad * cosine, grad.roll(grad.shape[-1] // 2, -1), sine, value=-1), None, None
