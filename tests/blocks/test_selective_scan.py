"""The chunked selective scan against the plain recurrence, and the causal convolution against torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.recurrent import selective_scan as module
from meristem.blocks.recurrent.selective_scan import causal_convolution, selective_scan

BATCH, TOKENS, CHANNELS, STATE = 3, 21, 6, 4


def plain_recurrence(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, continues: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The definition: one step per token, gradients by autograd."""
    outputs = []
    for t in range(x.shape[1]):
        if continues is not None:
            state = state * continues[:, t, None, None]
        state = torch.exp(dt[:, t, None] * a) * state + b[:, t, :, None] * (dt[:, t] * x[:, t])[:, None]
        outputs.append(torch.einsum("bne,bn->be", state, c[:, t]))
    return torch.stack(outputs, 1), state


def inputs(*, largest_step: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, b, c = normal(BATCH, TOKENS, CHANNELS), normal(BATCH, TOKENS, STATE), normal(BATCH, TOKENS, STATE)
    dt = F.softplus(normal(BATCH, TOKENS, CHANNELS)) * largest_step
    a = -normal(STATE, CHANNELS).exp()
    return [tensor.requires_grad_() for tensor in (x, dt, a, b, c)] + [normal(BATCH, STATE, CHANNELS)]


@pytest.mark.parametrize("chunk", [1, 8, 100])
@pytest.mark.parametrize("resets", [False, True])
def test_values_and_gradients_are_those_of_the_recurrence(
    chunk: int, resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 0)
    monkeypatch.setattr(module, "MIN_CHUNK_TOKENS", chunk)
    tensors = inputs()
    continues = torch.rand(BATCH, TOKENS, generator=torch.Generator().manual_seed(1)) > 0.3 if resets else None
    weight = torch.randn(BATCH, TOKENS, CHANNELS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (actual, state), (expected, final) = (f(*tensors, continues) for f in (selective_scan, plain_recurrence))
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(state, final.detach(), atol=1e-12, rtol=1e-12)
    assert not state.requires_grad
    gradients = [torch.autograd.grad((y * weight).sum(), tensors[:5]) for y in (actual, expected)]
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-12, rtol=1e-12)


def test_large_steps_forget_without_overflow() -> None:
    """exp(Δ A) is computed per step, never divided by: steps of any size are finite, in float32 too."""
    tensors = [tensor.detach().float().requires_grad_() for tensor in inputs(largest_step=1e4)]
    y, state = selective_scan(*tensors)
    gradients = torch.autograd.grad(y.sum(), tensors[:5])
    assert all(bool(tensor.isfinite().all()) for tensor in (y, state, *gradients))
    x, dt, _, b, c, _ = wide_tensors = inputs(largest_step=1e4)
    torch.testing.assert_close(selective_scan(*wide_tensors)[0], (b * c).sum(-1, keepdim=True) * dt * x)


def test_a_step_of_zero_keeps_the_state() -> None:
    x, dt, *others = inputs()
    padded_dt = dt.detach().clone()
    padded_dt[:, 9:] = 0
    _, state = selective_scan(x, padded_dt, *others)
    a, b, c, start = others
    _, expected = selective_scan(x[:, :9], dt[:, :9], a, b[:, :9], c[:, :9], start)
    assert torch.equal(state, expected)


def test_under_autocast_it_stays_in_float32() -> None:
    tensors = [tensor.detach().float() for tensor in inputs()]
    expected, _ = selective_scan(*tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = selective_scan(*tensors)
    assert y.dtype == state.dtype == torch.float32
    assert torch.equal(y, expected)


def test_only_states_between_chunks_are_saved() -> None:
    """T · N · E values of a row would be the largest tensor of a model by far."""
    saved: list[int] = []

    def record(tensor: Any) -> Any:
        saved.append(tensor.numel())
        return tensor

    tokens, channels, state_size = 256, 64, 16
    shapes = [(1, tokens, channels)] * 2 + [(state_size, channels)] + [(1, tokens, state_size)] * 2
    tensors = [torch.rand(*shape, requires_grad=True) for shape in shapes]
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        selective_scan(*tensors, torch.zeros(1, state_size, channels))
    assert max(saved) == tokens * channels
    assert sum(saved) < tokens * channels * state_size / 3


@pytest.mark.parametrize("kernel_size", [2, 4])
def test_the_convolution_is_torchs_depthwise_one(kernel_size: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64) for shape in ((2, 9, 5), (5, kernel_size), (5,)))
    padded = F.pad(x, (0, 0, kernel_size - 1, 0))
    expected = F.conv1d(padded.transpose(1, 2), weight[:, None], bias, groups=5).transpose(1, 2)
    torch.testing.assert_close(causal_convolution(padded, weight, bias, (None,) * kernel_size), expected)
    torch.testing.assert_close(  # in two parts
        causal_convolution(padded[:, 4:], weight, bias, (None,) * kernel_size), expected[:, 4:]
    )
