from __future__ import annotations

import torch

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
