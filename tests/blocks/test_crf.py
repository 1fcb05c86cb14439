"""The CRF against all paths, one by one."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from meristem.blocks.heads.crf import CRF, NEG_INF

WORDS = (4, 1, 3)
CLASSES = 3


@pytest.fixture
def crf() -> CRF:
    crf = CRF(CLASSES).double()
    torch.manual_seed(1)
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


@pytest.fixture
def scores() -> Tensor:
    return torch.randn(len(WORDS), max(WORDS), CLASSES, dtype=torch.float64, generator=torch.manual_seed(2))


def present() -> Tensor:
    return torch.arange(max(WORDS)) < torch.tensor(WORDS)[:, None]


def value(crf: CRF, scores_WC: Tensor, path: tuple[int, ...]) -> Tensor:
    """The score of one path, as its definition says."""
    steps = [crf.transitions[a, b] for a, b in pairwise(path)]
    emissions = [scores_WC[index, tag] for index, tag in enumerate(path)]
    return torch.stack([crf.start[path[0]], crf.end[path[-1]], *emissions, *steps]).sum()


def paths(crf: CRF, scores_WC: Tensor, words: int) -> dict[tuple[int, ...], Tensor]:
    return {path: value(crf, scores_WC, path) for path in product(range(CLASSES), repeat=words)}


def test_the_sum_over_all_paths_and_its_gradients(crf: CRF, scores: Tensor) -> None:
    scores.requires_grad_()
    expected = torch.stack(
        [
            torch.stack(list(paths(crf, score, words).values())).logsumexp(0)
            for score, words in zip(scores, WORDS, strict=True)
        ]
    )
    log_partition = crf(scores, present())
    torch.testing.assert_close(log_partition, expected, rtol=1e-12, atol=1e-12)
    leaves = [scores, *crf.parameters()]
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    for actual, other in zip(
        torch.autograd.grad((log_partition * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(actual, other, rtol=1e-10, atol=1e-12)


def test_one_allowed_class_per_word_leaves_one_path(crf: CRF, scores: Tensor) -> None:
    """What the loss subtracts: gradients stay finite although everything else is impossible."""
    scores.requires_grad_()
    path = (2, 0, 0, 1)
    allowed = torch.zeros(3, 4, CLASSES, dtype=torch.bool)
    for index, tag in enumerate(path):
        allowed[:, index, tag] = True
    allowed[2, 1] = True  # the third row's second word may be anything
    log_partition = crf(scores.masked_fill(~allowed & present()[..., None], NEG_INF), present())
    open_paths = [value(crf, scores[2], (2, tag, 0)) for tag in range(CLASSES)]
    expected = torch.stack(
        [value(crf, scores[0], path), value(crf, scores[1], path[:1]), torch.stack(open_paths).logsumexp(0)]
    )
    torch.testing.assert_close(log_partition, expected, rtol=1e-12, atol=1e-12)
    leaves = [scores, *crf.parameters()]
    for actual, other in zip(
        torch.autograd.grad(log_partition.sum(), leaves), torch.autograd.grad(expected.sum(), leaves), strict=True
    ):
        torch.testing.assert_close(actual, other, rtol=1e-10, atol=1e-12)


def test_the_viterbi_path_and_each_words_marginals(crf: CRF, scores: Tensor) -> None:
    crf.requires_grad_(False)
    best, chances = crf.viterbi_decode(scores, present()), crf.marginals(scores, present())
    for row, words in enumerate(WORDS):
        every = paths(crf, scores[row], words)
        assert tuple(best[row, :words].tolist()) == max(every, key=lambda path: float(every[path]))
        shares = torch.stack(list(every.values())).softmax(0)
        for word, tag in product(range(words), range(CLASSES)):
            matching = torch.tensor([path[word] == tag for path in every])
            torch.testing.assert_close(chances[row, word, tag], shares[matching].sum(), rtol=1e-10, atol=1e-12)


def test_forbidden_transitions_are_never_taken(crf: CRF, scores: Tensor) -> None:
    legal = torch.tensor([[True, True, False], [True, False, True], [True, True, True], [True, True, False]])
    crf.requires_grad_(False)
    best, chances = crf.viterbi_decode(scores, present(), legal), crf.marginals(scores, present(), legal)
    free = crf.viterbi_decode(scores, present())
    assert not torch.equal(best, free)
    for row, words in enumerate(WORDS):
        every = {
            path: score
            for path, score in paths(crf, scores[row], words).items()
            if legal[-1, path[0]] and all(legal[a, b] for a, b in pairwise(path))
        }
        assert tuple(best[row, :words].tolist()) == max(every, key=lambda path: float(every[path]))
        shares = torch.stack(list(every.values())).softmax(0)
        for word, tag in product(range(words), range(CLASSES)):
            matching = torch.tensor([path[word] == tag for path in every])
            torch.testing.assert_close(chances[row, word, tag], shares[matching].sum(), rtol=1e-10, atol=1e-12)


def test_padding_is_ignored(crf: CRF, scores: Tensor) -> None:
    other = scores.masked_fill(~present()[..., None], 1e3)
    torch.testing.assert_close(crf(other, present()), crf(scores, present()))
    assert torch.equal(
        crf.viterbi_decode(other, present())[1, :1], crf.viterbi_decode(scores[1:2, :1], present()[1:2, :1])[0]
    )
    assert crf(scores, torch.zeros(3, 4, dtype=torch.bool)).tolist() == [0.0, 0.0, 0.0]
