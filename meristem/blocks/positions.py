"""Where a token stands: learned and sinusoidal vectors added to embeddings, rotary turns inside attention."""

# B batch, T tokens, D width, H heads, C channels of one head

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

PositionName = Literal["learned", "sinusoidal", "rotary", "none"]


class Sinusoidal(nn.Module):
    """Sines and cosines of geometrically spaced wavelengths (Vaswani et al. §3.5)."""

    table: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        channels = torch.arange(0, width, 2, dtype=torch.float64)  # in single precision far angles would be 1e-5 off
        angle = torch.arange(length)[:, None] * torch.exp(channels * (-math.log(10_000.0) / width))
        table = torch.zeros(length, width)
        table[:, 0::2] = angle.sin()
        table[:, 1::2] = angle.cos()[:, : width // 2]
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Positions [...] → vectors [..., D]."""
        return self.table[positions]


def added_positions(name: PositionName, length: int, width: int) -> nn.Module | None:
    """The scheme's vectors to add to embeddings, if it has any."""
    if name == "learned":
        return nn.Embedding(length, width)
    return Sinusoidal(length, width) if name == "sinusoidal" else None


class Rotary(nn.Module):
    """Turns each pair of channels by an angle that grows with position (Su et al. 2021)."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, length: int, channels: int, base: float = 10_000.0) -> None:
        super().__init__()
        angle = torch.arange(length)[:, None] * base ** (-torch.arange(0, channels, 2) / channels)
        self.register_buffer("cosine", torch.cat([angle.cos(), angle.cos()], -1), persistent=False)
        self.register_buffer("sine", torch.cat([-angle.sin(), angle.sin()], -1), persistent=False)

    def forward(self, x_BTHC: Tensor, positions: Tensor | None) -> Tensor:
        """Turn queries and keys; without positions they stand at 0, 1, 2, …"""
        length = x_BTHC.shape[1]
        if positions is None:
            cosine, sine = self.cosine[None, :length, None], self.sine[None, :length, None]
        else:
            cosine, sine = self.cosine[positions][:, :, None], self.sine[positions][:, :, None]
        turned: Tensor = _Turn.apply(  # type: ignore[no-untyped-call]  # autograd is untyped
            x_BTHC, cosine.to(x_BTHC.dtype), sine.to(x_BTHC.dtype)
        )
        return turned


class _Turn(torch.autograd.Function):
    """x·cos + swap(x)·sin in two passes each way; a turn's gradient is the turn back."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return torch.addcmul(x * cosine, x.roll(x.shape[-1] // 2, -1), sine)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors  # type: ignore[attr-defined]  # set in forward
        (grad,) = grads
        return torch.addcmul(grad * cosine, grad.roll(grad.shape[-1] // 2, -1), sine, value=-1), None, None
