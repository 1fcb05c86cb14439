from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.transformer.norms import build_norm


def test_layer_norm_is_its_formula() -> None:
    x = torch.randn(3, 5, 16, dtype=torch.float64) * 4 + 2
    norm = build_norm("layer", 16, 1e-5).double()
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(norm(x), expected)


def test_root_mean_square_norm_is_its_formula() -> None:
    x = torch.randn(3, 5, 16, dtype=torch.float64) * 4 + 2
    norm = build_norm("rms", 16, 1e-6).double()
    torch.testing.assert_close(norm(x), x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt())


def test_biases_can_be_left_out() -> None:
    assert {n for n, _ in build_norm("layer", 8, 1e-5, bias=False).named_parameters()} == {"weight"}
    assert {n for n, _ in build_norm("layer", 8, 1e-5).named_parameters()} == {"weight", "bias"}
    assert {n for n, _ in build_norm("rms", 8, 1e-5).named_parameters()} == {"weight"}


def test_rms_norm_in_bfloat16_is_as_close_to_float32_as_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    values, grad = (torch.randn(40, 7, 66, generator=generator).bfloat16() for _ in range(2))
    norm = build_norm("rms", 66, 1e-6)
    norm.weight.data.copy_((1 + torch.randn(66, generator=generator)).bfloat16())

    def results(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> list[Tensor]:
        norm.zero_grad()
        x = values.to(dtype).requires_grad_()
        output = function(x)
        output.backward(grad.to(dtype))
        assert output.dtype == dtype
        assert norm.weight.grad is not None and x.grad is not None
        return [output.detach().float(), x.grad.float(), norm.weight.grad.clone()]

    def torch_norm(x: Tensor) -> Tensor:
        return F.rms_norm(x, (66,), norm.weight.to(x.dtype), 1e-6)

    exact, ours, theirs = (
        results(norm, torch.float32),
        results(norm, torch.bfloat16),
        results(torch_norm, torch.bfloat16),
    )
    for wanted, our_result, their_result in zip(exact, ours, theirs, strict=True):
        our_error, their_error = ((result - wanted).norm() / wanted.norm() for result in (our_result, their_result))
        assert 0 < our_error < max(0.006, 1.2 * their_error)
