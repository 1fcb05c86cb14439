"""Linear layers with int8 weights, for inference on CPUs: weights are quantized once, activations at each call.

A weight matrix has one scale per output, and activations have one scale per row: a row's result depends on that row
alone, so that a text gets the same numbers whatever it is batched with.
"""

# N rows, K inputs, O outputs

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem.config.errors import MeristemError

CPU_FEATURES = ("avx512_vnni", "avx_vnni", "amx_int8")
"""Features with which a CPU multiplies int8 natively; without them products are slow, and may overflow."""
MAX_LEVEL, ZERO_POINT = 127, 128
KERNEL_INPUTS = 16
"""`_weight_int8pack_mm` of torch 2.13 crashes unless the number of inputs is a multiple of this."""
MIN_SCALE = 1e-30  # of a row or an output that is all zeros


def int8_features() -> list[str]:
    """Features of this CPU that multiply int8 natively."""
    capabilities = torch.cpu.get_capabilities()
    return [feature for feature in CPU_FEATURES if capabilities.get(feature)]


class Int8Linear(nn.Module):
    """`nn.Linear` with int8 weights; inputs and outputs are float32, and products are accumulated as int32."""

    def __init__(self, weight_OK: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        weight_OK = weight_OK.detach().float()
        num_outputs, self._num_inputs = weight_OK.shape
        self._scale_O = weight_OK.abs().amax(1).clamp_min_(MIN_SCALE) / MAX_LEVEL
        self._weight_OK = (weight_OK / self._scale_O[:, None]).round_().to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(self._weight_OK, None)
        self._zero_points_O = torch.zeros(num_outputs, dtype=torch.long)
        self._ones_O = torch.ones(num_outputs, dtype=torch.bfloat16)
        self._bias_O = torch.zeros(num_outputs) if bias_O is None else bias_O.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] → [..., O], with activations rounded to int8."""
        if torch.is_grad_enabled() and x.requires_grad:
            raise MeristemError("int8 weights cannot be trained: load the run without quantize")
        x_NK = x.reshape(x.numel() // self._num_inputs, self._num_inputs).float()
        if not len(x_NK):
            return x_NK.new_zeros(*x.shape[:-1], len(self._bias_O))
        # abs().amax() takes a twentieth of the time of the infinity norm
        scale_N1 = x_NK.abs().amax(-1, keepdim=True).clamp_min_(MIN_SCALE).div_(MAX_LEVEL)
        quantized_NK = torch.div(x_NK, scale_N1).round_().to(torch.int8)
        product_NO = torch.ops.onednn.qlinear_pointwise(
            quantized_NK.view(torch.uint8).bitwise_xor_(ZERO_POINT),  # + 128 as uint8: int8 inputs are not accelerated
            1.0,
            ZERO_POINT,
            self._packed,
            self._scale_O,
            self._zero_points_O,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return torch.addcmul(self._bias_O, product_NO, scale_N1).view(*x.shape[:-1], len(self._bias_O))

    def multiply_few_rows(self, x_NK: Tensor) -> Tensor:
        """[N, K] → [N, O] with activations in bfloat16: for one row a third of the time of `forward`."""
        if self._num_inputs % KERNEL_INPUTS:
            return self(x_NK)  # type: ignore[no-any-return]  # nn.Module.__call__
        product_NO = torch._weight_int8pack_mm(x_NK.bfloat16(), self._weight_OK, self._ones_O)
        return torch.addcmul(self._bias_O, product_NO, self._scale_O)
