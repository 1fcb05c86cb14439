"""Comparing a family with transformers' own: the same weights in, the same outputs and gradients out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

Named = Iterable[tuple[Tensor, Tensor]]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Both precisions: single shows what a run would see, double shows that nothing but rounding differs."""
    parameter_dtype: torch.dtype = request.param
    return parameter_dtype


@pytest.fixture
def close(dtype: torch.dtype) -> Callable[[Tensor, Tensor], None]:
    """Equal within the precision's bound, relative to the largest value there is."""

    def check(actual: Tensor, expected: Tensor) -> None:
        assert actual.shape == expected.shape
        worst = float((actual - expected).detach().abs().max())
        assert worst <= TOLERANCE[dtype] * max(1.0, float(expected.detach().abs().max())), worst

    return check


@pytest.fixture
def ragged() -> tuple[Tensor, Tensor]:
    """Tokens of three rows with odd lengths, and which of them are there."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(5, 61, (3, 13), generator=generator)
    present = torch.arange(13)[None] < torch.tensor([13, 7, 1])[:, None]
    return tokens.masked_fill(~present, 1), present


def scatter(module: nn.Module, seed: int = 0) -> None:
    """Random weights everywhere, norms and biases too, so that no name can be mistaken for another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator) * 0.2 + (0.5 if parameter.ndim == 1 else 0)
            )


@pytest.fixture
def randomised() -> Callable[[nn.Module], None]:
    """Fill a module with random weights."""
    return scatter
