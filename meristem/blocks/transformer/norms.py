"""Normalization layers by name: LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NormName = Literal["layer", "rms"]


class RMSNorm(nn.RMSNorm):
    """Root mean square norm; torch fuses it only where its weight has the dtype of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] → [..., D]; the mean is computed in float32."""
        if x.dtype == torch.bfloat16 and x.device.type == "cpu" and x.requires_grad and self.eps is not None:
            return bfloat16_rms_norm(x, self.weight, self.eps)
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def bfloat16_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x · weight / RMS(x) over the last dimension, with a backward pass of few operators: torch's is not fused on CPUs,
    and forward and backward take 1.5 times as long with it (1.39 against 2.10 ms for [2048, 256])."""
    return _BFloat16RMSNorm.apply(x, weight, eps)  # type: ignore[no-any-return, no-untyped-call]  # autograd is untyped


class _BFloat16RMSNorm(torch.autograd.Function):
    """Keeps n = x / RMS(x); dx = (g·w − n · mean(g·w·n)) / RMS(x), and dw = Σ g·n."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        inverse_rms = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
        normalized = x * inverse_rms
        ctx.save_for_backward(normalized, inverse_rms, weight)
        output: Tensor = normalized * weight.to(x.dtype)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        normalized, inverse_rms, weight = ctx.saved_tensors
        (grad,) = grads
        weight_in_dtype, products = weight.to(grad.dtype), grad * normalized
        grad_weight = products.flatten(0, -2).sum(0, dtype=torch.float32).to(weight.dtype)
        mean = (products @ weight_in_dtype)[..., None] / grad.shape[-1]
        grad_x = (grad * weight_in_dtype).addcmul_(normalized, mean, value=-1).mul_(inverse_rms)
        return grad_x, grad_weight, None


def build_norm(name: NormName, hidden_size: int, eps: float, *, bias: bool = True) -> nn.Module:
    """A normalization layer over the last dimension."""
    if name == "rms":
        return RMSNorm(hidden_size, eps=eps)
    return nn.LayerNorm(hidden_size, eps=eps, bias=bias)
