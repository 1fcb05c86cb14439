from __future__ import annotations

import math

import pytest
import torch

from meristem.blocks.attention.position_encoding import RotaryEmbedding, SinusoidalPositions, build_position_embedding


def test_sinusoidal_vectors_are_the_papers() -> None:
    table = SinusoidalPositions(50, 8)(torch.arange(50))
    for position in (0, 1, 7, 49):
        for pair in range(4):
            angle = position / 10_000 ** (2 * pair / 8)
            assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)
    assert SinusoidalPositions(4, 7)(torch.tensor([[1, 2]])).shape == (1, 2, 7)


def test_only_added_schemes_have_vectors() -> None:
    assert build_position_embedding("rotary", 4, 8) is None
    assert build_position_embedding("none", 4, 8) is None
    position_embedding = build_position_embedding("learned", 4, 8)
    assert isinstance(position_embedding, torch.nn.Embedding)
    assert position_embedding.weight.shape == (4, 8)
    assert isinstance(build_position_embedding("sinusoidal", 4, 8), SinusoidalPositions)


def test_scores_depend_on_distance_only() -> None:
    rotary, x = RotaryEmbedding(64, 16).double(), torch.randn(2, 1, 1, 16, dtype=torch.float64)

    def score(position: int, other: int) -> float:
        q, k = (rotary(v[None, 0], torch.tensor([[p]])) for v, p in zip(x, (position, other), strict=True))
        return float((q * k).sum())

    for distance in (-5, 0, 3, 20):
        scores = [score(position, position + distance) for position in (6, 17, 40)]
        assert max(scores) - min(scores) < 1e-5  # the tables are float32
    assert abs(score(10, 10) - score(10, 13)) > 1e-3


def test_a_rotation_keeps_lengths_and_position_zero() -> None:
    rotary, x = RotaryEmbedding(32, 8), torch.randn(2, 9, 3, 8)
    rotated = rotary(x, None)
    torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(rotated[:, 0], x[:, 0])
    assert not torch.allclose(rotated[:, 1], x[:, 1])


def test_rotations_are_complex_multiplications() -> None:
    rotary, x = RotaryEmbedding(32, 8, base=100.0), torch.randn(1, 5, 2, 8)
    speed = 100.0 ** (-torch.arange(4) / 4)
    turn = torch.polar(torch.ones(5, 4), torch.arange(5)[:, None] * speed)
    expected = torch.complex(x[..., :4], x[..., 4:]) * turn[None, :, None]
    torch.testing.assert_close(rotary(x, None), torch.cat([expected.real, expected.imag], -1), atol=1e-6, rtol=1e-5)


def test_given_positions_are_used_row_by_row() -> None:
    rotary, x = RotaryEmbedding(32, 8), torch.randn(2, 3, 2, 8)
    expected = rotary(torch.cat([torch.zeros(2, 4, 2, 8), x], 1), None)[:, 4:]
    torch.testing.assert_close(rotary(x, torch.tensor([[4, 5, 6], [4, 5, 6]])), expected)
    mixed = rotary(x, torch.tensor([[4, 5, 6], [0, 1, 2]]))
    torch.testing.assert_close(mixed[1], rotary(x, None)[1])
    torch.testing.assert_close(mixed[0], expected[0])


def test_the_gradient_is_autograds_own() -> None:
    rotary, x = RotaryEmbedding(16, 8).double(), torch.randn(2, 6, 3, 8, dtype=torch.float64, requires_grad=True)
    seed = torch.randn(2, 6, 3, 8, dtype=torch.float64)
    rotary(x, None).backward(seed)
    fast, x.grad = x.grad, None
    cosine, sine = rotary.cosine[None, :6, None], rotary.sine[None, :6, None]
    plain = x * cosine + torch.cat([x[..., 4:], x[..., :4]], -1) * sine
    plain.backward(seed)
    torch.testing.assert_close(fast, x.grad, atol=1e-14, rtol=0)
    assert torch.autograd.gradcheck(lambda v: rotary(v, None), (x[:1, :2].detach().requires_grad_(),))
