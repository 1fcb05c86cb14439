"""Log-probabilities of chosen words against plain log-softmax, gradients included."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from meristem.blocks.heads import selected_logprobs as room
from meristem.blocks.heads.adaptive_softmax import AdaptiveSoftmaxHead
from meristem.blocks.heads.selected_logprobs import selected_logprobs
from meristem.blocks.heads.vocabulary import MIN_CHUNK_ROWS, VocabularyHead

WORDS, WIDTH = 37, 12


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_CHUNK_LOGITS", 1)


def case(number: int, *, bias: bool) -> tuple[VocabularyHead, Tensor, Tensor]:
    torch.manual_seed(1)
    head = VocabularyHead(nn.Embedding(WORDS, WIDTH), bias=bias).double()
    if head.bias is not None:
        nn.init.normal_(head.bias)
    return head, torch.randn(number, WIDTH, dtype=torch.float64, requires_grad=True), torch.randint(5, WORDS, (number,))


def plainly(head: VocabularyHead, states: Tensor, words: Tensor, without: Tensor, temperature: float) -> Tensor:
    return ((head(states) / temperature) + without).log_softmax(-1).gather(1, words[:, None])[:, 0]


@pytest.mark.parametrize("number", [0, 1, MIN_CHUNK_ROWS, 2 * MIN_CHUNK_ROWS + 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_are_log_softmaxs(number: int, bias: bool, temperature: float) -> None:
    head, states, words = case(number, bias=bias)
    without = torch.zeros(WORDS, dtype=torch.float64).index_fill_(0, torch.tensor([0, 3]), -torch.inf)
    pull = torch.randn(number, dtype=torch.float64)
    parts = [states, head.weight, *([head.bias] if head.bias is not None else [])]
    logprobs = selected_logprobs(head, states, words, logit_mask_V=without, temperature=temperature)
    right = plainly(head, states, words, without, temperature)
    torch.testing.assert_close(logprobs, right, atol=1e-12, rtol=1e-12)
    gradients, theirs = (torch.autograd.grad((values * pull).sum(), parts) for values in (logprobs, right))
    for gradient, other in zip(gradients, theirs, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-11, rtol=1e-9)


def test_banned_tokens_have_no_gradient_and_no_probability() -> None:
    head, states, words = case(9, bias=False)
    shut = torch.zeros(WORDS, dtype=torch.float64).index_fill_(0, torch.tensor([4]), -torch.inf)
    (grad,) = torch.autograd.grad(selected_logprobs(head, states, words, logit_mask_V=shut).sum(), [head.weight])
    assert not grad[4].any() and grad[6].any()


def test_no_gradient_is_computed_for_frozen_inputs() -> None:
    head, states, words = case(5, bias=True)
    head.requires_grad_(False)
    (grad,) = torch.autograd.grad(selected_logprobs(head, states, words).sum(), [states])
    assert grad.abs().sum() > 0


def test_an_adaptive_softmax_gives_log_probabilities_too() -> None:
    torch.manual_seed(0)
    head = AdaptiveSoftmaxHead(nn.Embedding(WORDS, WIDTH), (10,), init_std=0.5)
    states, words = torch.randn(7, WIDTH), torch.randint(WORDS, (7,))
    torch.testing.assert_close(
        selected_logprobs(head, states, words), head(states).log_softmax(-1)[torch.arange(7), words]
    )
