from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.heads import vocabulary
from meristem.blocks.heads.task_heads import PredictionTransform
from meristem.blocks.heads.vocabulary import MIN_CHUNK_ROWS, VocabularyHead

WORDS, WIDTH = 37, 12


def head(
    *,
    bias: bool = True,
    transform: bool = False,
    dtype: torch.dtype = torch.float64,
    soft_cap: float | None = None,
) -> VocabularyHead:
    torch.manual_seed(1)
    between = PredictionTransform(WIDTH, "gelu", "layer", 1e-12, 0.5) if transform else None
    vocabulary_head = VocabularyHead(nn.Embedding(WORDS, WIDTH), transform=between, bias=bias, soft_cap=soft_cap)
    if vocabulary_head.bias is not None:
        nn.init.normal_(vocabulary_head.bias)
    return vocabulary_head.to(dtype)


def case(number: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(number, WIDTH, dtype=dtype, requires_grad=True), torch.randint(WORDS, (number,))


def gradients(total: Tensor, *parameters: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(total, parameters))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small vocabulary would be judged in one piece, and no test would cross from one chunk into the next."""
    monkeypatch.setattr(vocabulary, "MAX_CHUNK_LOGITS", 1)


@pytest.mark.parametrize("number", [1, MIN_CHUNK_ROWS - 1, MIN_CHUNK_ROWS, MIN_CHUNK_ROWS + 1, 2 * MIN_CHUNK_ROWS + 3])
@pytest.mark.parametrize(("smoothing", "l1"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.3), (0.2, 0.05)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("soft_cap", [None, 2.5])
def test_loss_and_gradients_are_cross_entropys(
    number: int, smoothing: float, l1: float, bias: bool, soft_cap: float | None
) -> None:
    vocabulary_head, (states, targets) = head(bias=bias, soft_cap=soft_cap), case(number)
    parts = [states, vocabulary_head.weight, *([vocabulary_head.bias] if vocabulary_head.bias is not None else [])]
    loss = vocabulary_head.compute_loss(states, targets, smoothing=smoothing, l1=l1)
    logits = F.linear(states, vocabulary_head.weight, vocabulary_head.bias)
    logits = logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)
    plain = (
        F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing) + l1 * logits.abs().mean(1).sum()
    )
    torch.testing.assert_close(loss.total, plain, atol=0, rtol=1e-12)
    torch.testing.assert_close(
        loss.losses_N, F.cross_entropy(logits, targets, reduction="none"), atol=1e-12, rtol=1e-12
    )
    for fast, slow in zip(gradients(3 * loss.total, *parts), gradients(3 * plain, *parts), strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-12, rtol=1e-12)


def test_single_precision_stays_within_its_rounding() -> None:
    vocabulary_head, (states, targets) = head(dtype=torch.float32), case(300, torch.float32)
    logits = F.linear(states, vocabulary_head.weight, vocabulary_head.bias)
    plain = F.cross_entropy(logits, targets, reduction="sum")
    loss = vocabulary_head.compute_loss(states, targets)
    torch.testing.assert_close(loss.total, plain, rtol=1e-6, atol=0)
    for fast, slow in zip(
        gradients(loss.total, states, vocabulary_head.weight),
        gradients(plain, states, vocabulary_head.weight),
        strict=True,
    ):
        torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-5)


def test_huge_logits_stay_finite() -> None:
    vocabulary_head, (states, targets) = head(dtype=torch.float32), case(5, torch.float32)
    loss = vocabulary_head.compute_loss(states * 1e4, targets)
    assert torch.isfinite(loss.total)
    assert all(torch.isfinite(g).all() for g in gradients(loss.total, states, vocabulary_head.weight))


def test_a_frozen_embedding_gets_no_gradient_and_states_get_theirs() -> None:
    vocabulary_head, (states, targets) = head(), case(9)
    vocabulary_head.weight.requires_grad_(False)
    loss = vocabulary_head.compute_loss(states, targets)
    plain = F.cross_entropy(F.linear(states, vocabulary_head.weight, vocabulary_head.bias), targets, reduction="sum")
    torch.testing.assert_close(gradients(loss.total, states)[0], gradients(plain, states)[0])
    loss.total.backward()
    assert vocabulary_head.weight.grad is None
    assert vocabulary_head.bias is not None
    assert vocabulary_head.bias.grad is not None


def test_frozen_states_still_train_the_embedding() -> None:
    vocabulary_head, (states, targets) = head(), case(9)
    loss = vocabulary_head.compute_loss(states.detach(), targets)
    plain = F.cross_entropy(
        F.linear(states.detach(), vocabulary_head.weight, vocabulary_head.bias), targets, reduction="sum"
    )
    torch.testing.assert_close(
        gradients(loss.total, vocabulary_head.weight)[0], gradients(plain, vocabulary_head.weight)[0]
    )


def test_a_transform_learns_through_the_chunks() -> None:
    vocabulary_head, (states, targets) = head(transform=True), case(7)
    assert isinstance(vocabulary_head.transform, PredictionTransform)
    parts = [
        states,
        vocabulary_head.transform.dense.weight,
        vocabulary_head.transform.norm.weight,
        vocabulary_head.weight,
    ]
    plain = F.cross_entropy(vocabulary_head(states), targets, reduction="sum")
    for fast, slow in zip(
        gradients(vocabulary_head.compute_loss(states, targets).total, *parts), gradients(plain, *parts), strict=True
    ):
        torch.testing.assert_close(fast, slow, atol=1e-12, rtol=1e-10)


def test_no_targets_give_zero_loss_and_zero_gradients() -> None:
    vocabulary_head, (states, _) = head(), case(4)
    loss = vocabulary_head.compute_loss(states[:0], torch.zeros(0, dtype=torch.long))
    loss.total.backward()
    assert loss.total.item() == 0
    assert vocabulary_head.weight.grad is not None
    assert vocabulary_head.weight.grad.abs().max() == 0
    with torch.no_grad():
        assert vocabulary_head.compute_loss(states[:0], torch.zeros(0, dtype=torch.long)).total.item() == 0


def test_smoothing_and_penalties_count_without_a_gradient_too() -> None:
    vocabulary_head, (states, targets) = head(), case(50)
    expected = vocabulary_head.compute_loss(states, targets, smoothing=0.1, l1=0.2).total
    with torch.no_grad():
        torch.testing.assert_close(vocabulary_head.compute_loss(states, targets, smoothing=0.1, l1=0.2).total, expected)
        assert not torch.isclose(vocabulary_head.compute_loss(states, targets).total, expected)


def test_without_gradient_ranks_are_counted_instead() -> None:
    vocabulary_head, (states, targets) = head(), case(MIN_CHUNK_ROWS + 20)
    assert vocabulary_head.compute_loss(states, targets).ranks_N is None
    with torch.no_grad():
        loss = vocabulary_head.compute_loss(states, targets)
        logits = vocabulary_head(states)
    assert not loss.total.requires_grad
    torch.testing.assert_close(loss.losses_N, F.cross_entropy(logits, targets, reduction="none"))
    order = logits.argsort(1, descending=True)
    assert loss.ranks_N is not None
    assert torch.equal(loss.ranks_N, (order == targets[:, None]).nonzero()[:, 1])


def test_each_loss_is_detached() -> None:
    vocabulary_head, (states, targets) = head(), case(3)
    assert not vocabulary_head.compute_loss(states, targets).losses_N.requires_grad


def test_under_autocast_sums_stay_in_single_precision() -> None:
    vocabulary_head, (states, targets) = head(dtype=torch.float32), case(40, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = vocabulary_head.compute_loss(states, targets)
    assert loss.total.dtype == torch.float32
    plain = F.cross_entropy(F.linear(states, vocabulary_head.weight, vocabulary_head.bias), targets, reduction="sum")
    torch.testing.assert_close(loss.total, plain, rtol=1e-2, atol=0)
    assert gradients(loss.total, vocabulary_head.weight)[0].dtype == torch.float32


def test_the_output_layer_is_tied_to_the_embedding() -> None:
    embedding = nn.Embedding(5, 4)
    assert VocabularyHead(embedding).weight is embedding.weight


@pytest.mark.parametrize("number", [0, 1, MIN_CHUNK_ROWS, 2 * MIN_CHUNK_ROWS + 3])
@pytest.mark.parametrize("learning", [True, False])
def test_tokens_are_sampled_while_the_logits_exist(number: int, learning: bool) -> None:
    vocabulary_head, (states, targets) = head(), case(number)
    uniform = torch.rand(number, generator=torch.Generator().manual_seed(4))
    with torch.set_grad_enabled(learning):
        loss = vocabulary_head.compute_loss(states, targets, uniform_N=uniform)
    running = vocabulary_head(states).softmax(-1).cumsum(-1)
    plain = torch.searchsorted(running, uniform[:, None].double() * running[:, -1:], right=True)[:, 0]
    assert loss.sampled_ids_N is not None
    assert torch.equal(loss.sampled_ids_N, plain)
    assert vocabulary_head.compute_loss(states, targets).sampled_ids_N is None


@pytest.mark.parametrize(("smoothing", "l1"), [(0.0, 0.0), (0.2, 0.05)])
def test_sampling_changes_neither_loss_nor_gradients(smoothing: float, l1: float) -> None:
    vocabulary_head, (states, targets) = head(), case(MIN_CHUNK_ROWS + 9)
    uniform = torch.rand(MIN_CHUNK_ROWS + 9)
    drawing = vocabulary_head.compute_loss(states, targets, smoothing=smoothing, l1=l1, uniform_N=uniform)
    plain = vocabulary_head.compute_loss(states, targets, smoothing=smoothing, l1=l1)
    assert drawing.sampled_ids_N is not None
    assert not drawing.sampled_ids_N.requires_grad
    assert torch.equal(drawing.total, plain.total)
    for gradient, other in zip(
        gradients(drawing.total, states, vocabulary_head.weight),
        gradients(plain.total, states, vocabulary_head.weight),
        strict=True,
    ):
        assert torch.equal(gradient, other)
