"""Muon: orthogonalization, size of the update, weight decay and Nesterov momentum."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from meristem.training.optim.cautious_adamw import CautiousAdamW
from meristem.training.optim.muon import ROW_DECAY, Muon, MuonVariant, orthogonalize


def spectrum(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix)


@pytest.mark.parametrize("shape", [(16, 16), (8, 40), (40, 8), (64, 16)])
def test_every_singular_value_is_brought_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    values = spectrum(orthogonalize(torch.randn(3, *shape)))
    assert values.min() > 0.4
    assert values.max() < 1.3


def test_singular_vectors_stay_and_the_scale_goes() -> None:
    torch.manual_seed(0)
    m = torch.randn(1, 12, 12, dtype=torch.float64)
    u, _, v = torch.linalg.svd(m[0])
    rotated = u.mT @ orthogonalize(m)[0] @ v.mT
    assert (rotated - torch.diag(rotated.diagonal())).abs().max() < 1e-9
    torch.testing.assert_close(orthogonalize(m * 1000), orthogonalize(m), atol=1e-6, rtol=0)


def test_a_gradient_of_nothing_moves_nothing() -> None:
    assert torch.equal(orthogonalize(torch.zeros(1, 4, 6)), torch.zeros(1, 4, 6))


def test_single_precision_stays_single() -> None:
    assert orthogonalize(torch.randn(2, 4, 4)).dtype == torch.float32
    weight = nn.Parameter(torch.randn(6, 6))
    optimizer = Muon([weight], 0.1, momentum=0.9, weight_decay=0.0)
    weight.grad = torch.randn(6, 6)
    optimizer.step()
    assert optimizer.state[weight]["momentum"].dtype == weight.dtype == torch.float32


def step(
    shape: tuple[int, int], sizes: tuple[int, ...] | None = None, **settings: float
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(shape))
    before = weight.detach().clone()
    split_sizes = {} if sizes is None else {weight: sizes}
    optimizer = Muon([weight], 0.1, split_sizes=split_sizes, **{"momentum": 0.9, "weight_decay": 0.0, **settings})
    weight.grad = torch.randn(shape)
    optimizer.step()
    return before, weight.detach(), weight.grad


@pytest.mark.parametrize("shape", [(32, 32), (16, 64), (64, 16)])
def test_a_step_is_as_large_as_adamws_would_be(shape: tuple[int, int]) -> None:
    """AdamW's updates have a root mean square of about 0.2 of the rate, whatever the shape (Liu et al. 2025)."""
    before, after, grad = step(shape)
    change = (after - before) / 0.1
    assert float(change.pow(2).mean().sqrt()) == pytest.approx(0.2, rel=0.15)
    expected = -orthogonalize(grad[None])[0] * 0.2 * max(shape) ** 0.5
    torch.testing.assert_close(change, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 4, 4), (20, 20), (4, 12)], ids=str)
def test_the_parts_of_a_fused_matrix_are_orthogonalized_one_by_one(sizes: tuple[int, ...]) -> None:
    before, after, grad = step((sum(sizes), 8), sizes)
    parts = [orthogonalize(part[None])[0] * 0.2 * max(len(part), 8) ** 0.5 for part in grad.split(sizes)]
    torch.testing.assert_close((after - before) / 0.1, -torch.cat(parts), atol=1e-4, rtol=1e-4)


def test_weights_decay_by_the_rate() -> None:
    _, plain, _ = step((8, 8))
    before, decayed, _ = step((8, 8), weight_decay=0.5)
    torch.testing.assert_close(decayed, plain - 0.1 * 0.5 * before, atol=1e-6, rtol=0)


def test_momentum_is_nesterovs() -> None:
    weight = nn.Parameter(torch.zeros(5, 5))
    optimizer = Muon([weight], 1.0, momentum=0.8, weight_decay=0.0)
    first, second = torch.randn(2, 5, 5).unbind()
    for grad in (first, second):
        before, weight.grad = weight.detach().clone(), grad
        optimizer.step()
    momentum = 0.8 * 0.2 * first + 0.2 * second
    torch.testing.assert_close(optimizer.state[weight]["momentum"], momentum)
    update = 0.2 * second + 0.8 * momentum
    torch.testing.assert_close(
        weight.detach() - before, -orthogonalize(update[None])[0] * 0.2 * 5**0.5, atol=1e-5, rtol=1e-5
    )


def test_what_has_no_gradient_is_left_alone() -> None:
    used, unused = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    optimizer = Muon([used, unused], 0.1, momentum=0.9, weight_decay=0.5)
    used.grad = torch.randn(4, 4)
    optimizer.step()
    assert torch.equal(unused, torch.ones(4, 4))
    assert unused not in optimizer.state


def test_fewer_iterations_are_less_exact() -> None:
    torch.manual_seed(0)
    m = torch.randn(1, 32, 32)
    spread = [float(spectrum(orthogonalize(m, steps)[0]).std()) for steps in (1, 3, 5)]
    assert spread[0] > spread[1] > spread[2]
    weight = nn.Parameter(torch.zeros(32, 32))
    optimizer = Muon([weight], 1.0, momentum=0.0, weight_decay=0.0, variant=MuonVariant(newton_schulz_steps=3))
    weight.grad = m[0].clone()
    optimizer.step()
    torch.testing.assert_close(weight.detach(), -orthogonalize(m, 3)[0] * 0.2 * 32**0.5)


def test_rows_are_normalized_by_their_running_size() -> None:
    """NorMuon: a row that was large in earlier updates moves less, and the whole update keeps its size."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(8, 24))
    optimizer = Muon([weight], 1.0, momentum=0.0, weight_decay=0.0, variant=MuonVariant(normalizes_rows=True))
    mean_square = torch.zeros(8, 1)
    for _ in range(3):
        before, weight.grad = weight.detach().clone(), torch.randn(8, 24)
        optimizer.step()
        update = orthogonalize(weight.grad[None])[0]
        mean_square = ROW_DECAY * mean_square + (1 - ROW_DECAY) * update.square().mean(1, keepdim=True)
        expected = update / mean_square.sqrt()
        expected *= 0.2 / expected.square().mean().sqrt()
        change = weight.detach() - before
        torch.testing.assert_close(change, -expected * (change.norm() / expected.norm()), atol=1e-4, rtol=1e-3)
        assert float(change.square().mean().sqrt()) == pytest.approx(0.2, rel=1e-3)
    torch.testing.assert_close(optimizer.state[weight]["row_mean_sq"], mean_square, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_only_weights_that_the_update_shrinks_decay(kind: str) -> None:
    def run(cautious: bool, decay: float) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(6, 10))
        before = weight.detach().clone()
        variant = MuonVariant(cautious_weight_decay=cautious)
        adamw = CautiousAdamW if cautious else torch.optim.AdamW
        optimizer = (
            Muon([weight], 0.1, momentum=0.0, weight_decay=decay, variant=variant)
            if kind == "muon"
            else adamw([weight], lr=0.1, weight_decay=decay)
        )
        weight.grad = torch.randn(6, 10)
        optimizer.step()
        return before, weight.detach()

    before, plain = run(False, 0.0)
    shrinks = (before - plain) * before > 0
    assert 10 < shrinks.sum() < 50
    torch.testing.assert_close(run(True, 0.5)[1], plain - 0.1 * 0.5 * before * shrinks)
    torch.testing.assert_close(run(False, 0.5)[1], plain - 0.1 * 0.5 * before)
