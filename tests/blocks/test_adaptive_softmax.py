from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from meristem.blocks.heads.adaptive_softmax import AdaptiveSoftmaxHead
from meristem.blocks.incremental.next_token_logits import NextTokenLogits
from meristem.config.errors import MeristemError


def head_of(cutoffs: tuple[int, ...] = (7, 20), words: int = 50) -> AdaptiveSoftmaxHead:
    torch.manual_seed(0)
    head = AdaptiveSoftmaxHead(nn.Embedding(words, 6), cutoffs, init_std=0.5).double()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head


@pytest.mark.parametrize("cutoffs", [(7, 20), (1,), (10, 20, 49), (30, 90)])
def test_every_token_has_its_probability(cutoffs: tuple[int, ...]) -> None:
    """Log-probabilities sum to one; a word's is its band's times its own within the band."""
    head, states = head_of(cutoffs), torch.randn(3, 4, 6, dtype=torch.float64)
    logprobs = head(states)
    torch.testing.assert_close(logprobs.exp().sum(-1), torch.ones(3, 4).double())
    first = torch.cat(
        [
            states @ head.weight[: head.shortlist_size].t() + head.bias[: head.shortlist_size],
            states @ head.bands.t() + head.bands_bias,
        ],
        -1,
    ).softmax(-1)
    torch.testing.assert_close(logprobs[..., 0].exp(), first[..., 0])
    torch.testing.assert_close(logprobs[..., head.cutoffs[-2] :].exp().sum(-1), first[..., -1])


@pytest.mark.parametrize("band", [range(50), range(7), range(20, 50)], ids=["all", "frequent", "rare"])
def test_the_loss_and_its_gradients_are_those_of_the_whole_distribution(band: range) -> None:
    head = head_of()
    states = torch.randn(600, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor(list(band))[torch.randint(len(band), (600,))]
    results = []
    for method in ("judged", "whole"):
        head.zero_grad()
        states.grad = None
        if method == "judged":
            loss = head.compute_loss(states, targets)
            total = loss.total
            torch.testing.assert_close(loss.losses_N.sum(), total.detach())
        else:
            total = F.nll_loss(head(states), targets, reduction="sum")
        (total * 3).backward()
        results.append([total.detach(), states.grad.clone(), *(p.grad.clone() for p in head.parameters())])
    for actual, other in zip(*results, strict=True):
        torch.testing.assert_close(actual, other, atol=1e-10, rtol=1e-10)


def test_without_gradient_the_rank_is_among_all_words() -> None:
    head = head_of()
    states, targets = torch.randn(300, 6, dtype=torch.float64), torch.randint(50, (300,))
    with torch.no_grad():
        loss = head.compute_loss(states, targets)
        order = head(states).argsort(-1, descending=True)
    assert loss.ranks_N is not None
    assert torch.equal(order.gather(1, loss.ranks_N[:, None])[:, 0], targets)
    torch.testing.assert_close(loss.losses_N, F.nll_loss(head(states), targets, reduction="none").detach())
    with torch.no_grad():
        assert len(head.compute_loss(states[:0], targets[:0]).losses_N) == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_next_token_logits_give_the_same_distribution(rows: int) -> None:
    head, states = head_of(), torch.randn(rows, 6, dtype=torch.float64)
    torch.testing.assert_close(NextTokenLogits(head)(states), head(states))


def test_what_an_adaptive_softmax_cannot_do_is_refused() -> None:
    head, states, targets = head_of(), torch.randn(3, 6, dtype=torch.float64), torch.tensor([1, 9, 30])
    for option in ({"smoothing": 0.1}, {"l1": 0.1}, {"uniform_N": torch.zeros(3)}):
        with pytest.raises(
            MeristemError, match=r"does not compute; leave them out, or set model.adaptive_cutoffs=\[\]"
        ):
            head.compute_loss(states, targets, **option)
    for wrong in ((20, 7), (0, 7), (7, 7)):
        with pytest.raises(MeristemError, match="must be positive and strictly increasing"):
            head_of(wrong)
