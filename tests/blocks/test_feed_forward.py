from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from meristem.blocks.transformer.feed_forward import ActivationName, FeedForward, activate

FORMULAS = {
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: x.clamp(min=0),
    "relu6": lambda x: x.clamp(0, 6),
    "swiglu": lambda x: (
        x[..., : x.shape[-1] // 2] * torch.sigmoid(x[..., : x.shape[-1] // 2]) * x[..., x.shape[-1] // 2 :]
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_are_their_formulas(name: ActivationName) -> None:
    x = torch.linspace(-9, 9, 200, dtype=torch.float64)
    torch.testing.assert_close(activate(name, x), FORMULAS[name](x))


@pytest.mark.parametrize("name", FORMULAS)
def test_up_projection_activation_down_projection(name: ActivationName) -> None:
    part, x = FeedForward(8, 20, name).double(), torch.randn(2, 3, 8, dtype=torch.float64)
    assert part.widen.weight.shape[0] == (40 if name == "swiglu" else 20)
    inner: Tensor = FORMULAS[name](x @ part.widen.weight.t() + part.widen.bias)
    torch.testing.assert_close(part(x), inner @ part.narrow.weight.t() + part.narrow.bias)


def test_biases_can_be_left_out() -> None:
    part = FeedForward(8, 16, "swiglu", bias=False)
    assert part.widen.bias is None
    assert part.narrow.bias is None
    assert torch.equal(part(torch.zeros(1, 8)), torch.zeros(1, 8))
