"""Adaptive softmax (Grave et al. 2017): rare words behind one more choice, so that most predictions cost little."""

# N predictions, D width, V vocabulary, F frequent words, R rarer bands

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.correct import rank
from meristem.blocks.vocabulary import CHUNK, Judged, VocabularyHead, chunked
from meristem.errors import MeristemError


class AdaptiveHead(VocabularyHead):
    """p(word) = p(word among the frequent), or p(band) · p(word in its band); words lie in order of frequency."""

    plain = False

    def __init__(self, embedding: nn.Embedding, cutoffs: Sequence[int], *, deviation: float) -> None:
        super().__init__(embedding, bias=True)
        words = embedding.num_embeddings
        if list(cutoffs) != sorted(set(cutoffs)) or cutoffs[0] < 1:
            raise MeristemError(f"model.cutoffs: {list(cutoffs)} must be numbers of words, each larger than the last")
        self.ends = [cut for cut in cutoffs if cut < words] + [words]
        self.frequent = self.ends[0]
        self.sizes = [stop - start for start, stop in pairwise([0, *self.ends])]
        self.bands = nn.Parameter(torch.empty(len(self.sizes) - 1, embedding.embedding_dim))
        self.bands_bias = nn.Parameter(torch.zeros(len(self.sizes) - 1))
        nn.init.normal_(self.bands, std=deviation)

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → [..., V], log-probabilities: as logits they give the same distribution."""
        (weight, bias), *rest = self._parts()
        first = F.linear(self.ready(states), weight, bias).log_softmax(-1)
        found = [first[..., : self.frequent]]
        for number, (weight, bias) in enumerate(rest):
            inside = F.linear(self.ready(states), weight, bias).log_softmax(-1)
            found.append(first[..., self.frequent + number, None] + inside)
        return torch.cat(found, -1)

    def judge(
        self,
        states_ND: Tensor,
        targets_N: Tensor,
        *,
        smoothing: float = 0.0,
        l1: float = 0.0,
        uniform_N: Tensor | None = None,
    ) -> Judged:
        """The summed loss; a band's words are only scored where one of them is right."""
        if smoothing or l1 or uniform_N is not None:
            raise MeristemError(
                "objective: label_smoothing, l1_outputs and drawn words need every word's logit, and an adaptive "
                "softmax never makes them all; leave them out, or take model.cutoffs=[]"
            )
        ready = self.ready(states_ND)
        if torch.is_grad_enabled() and (ready.requires_grad or self.weight.requires_grad):
            return self._learn(ready, targets_N)
        return self._measure(ready, targets_N)

    def _learn(self, ready_ND: Tensor, targets_N: Tensor) -> Judged:
        ends = torch.tensor(self.ends[:-1], device=targets_N.device)
        band_N = torch.bucketize(targets_N.contiguous(), ends, right=True)
        (weight, bias), *rest = self._parts()
        chosen = torch.where(band_N == 0, targets_N, self.frequent + band_N - 1)
        each, total = chunked(ready_ND, weight, bias, chosen)
        for number, (weight, bias) in enumerate(rest, 1):
            at = self._members(band_N, number)
            more, sum_of_more = chunked(ready_ND[at], weight, bias, targets_N[at] - self.ends[number - 1])
            each, total = each.index_add(0, at, more), total + sum_of_more
        return Judged(total=total, each_N=each, rank_N=None)

    def _measure(self, ready_ND: Tensor, targets_N: Tensor) -> Judged:
        each, ranks = [ready_ND.new_zeros(0)], [targets_N.new_zeros(0)]
        for part, wanted in zip(torch.split(ready_ND, CHUNK), torch.split(targets_N, CHUNK), strict=True):
            found = self(part)
            right = found.gather(1, wanted[:, None])
            each.append(-right[:, 0])
            ranks.append(rank(found, right))
        whole = torch.cat(each)
        return Judged(total=whole.sum(), each_N=whole, rank_N=torch.cat(ranks))

    def _parts(self) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of the first choice and of each band; one split, so that their gradient is one tensor."""
        assert self.bias is not None
        weights, biases = list(torch.split(self.weight, self.sizes)), list(torch.split(self.bias, self.sizes))
        weights[0], biases[0] = torch.cat([weights[0], self.bands]), torch.cat([biases[0], self.bands_bias])
        return list(zip(weights, biases, strict=True))

    def _members(self, band_N: Tensor, number: int) -> Tensor:
        """Which predictions are of a band; where tensors hold no numbers, an even share."""
        if band_N.is_meta:
            return torch.arange(len(band_N) // len(self.sizes), device=band_N.device)
        return (band_N == number).nonzero()[:, 0]
