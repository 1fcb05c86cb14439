"""The vocabulary loss against a few words drawn by rank instead of all of them (Jean et al. 2015)."""

# B batch, T tokens, D width, N predictions, K words drawn for a row, V vocabulary

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.vocabulary import VocabularyHead


def expected(words: Tensor, drawn: int, vocabulary: int) -> Tensor:
    """log of how often a word is among `drawn` ones: word w has p(w) = log((w + 2) / (w + 1)) / log(V + 1)."""
    return (torch.log1p(1 / (words.double() + 1)) * (drawn / math.log(vocabulary + 1))).log()


def sampled(head: VocabularyHead, states_BTD: Tensor, at_N: Tensor, targets_N: Tensor, drawn_BK: Tensor) -> Tensor:
    """Σ log(e^right + Σ e^drawn / how often it is drawn) − right: in expectation the inner sum is all words'.

    Each target is judged against the words drawn for its own row, so that no row hangs on its neighbours.
    """
    ready, (rows, time, _), number = head.ready(states_BTD), states_BTD.shape, drawn_BK.shape[1]
    size = len(head.weight)
    others_BTK = ready @ F.embedding(drawn_BK, head.weight).mT
    bias = torch.zeros_like(head.weight[:, 0]) if head.bias is None else head.bias
    correction = bias[drawn_BK] - expected(drawn_BK, number, size).to(ready.dtype)
    right_N = (ready.reshape(rows * time, -1).index_select(0, at_N) * F.embedding(targets_N, head.weight)).sum(-1)
    right_N = right_N + bias[targets_N]
    row_N = at_N // time
    others_NK = others_BTK.view(rows * time, number).index_select(0, at_N) + correction.index_select(0, row_N)
    hit_NK = drawn_BK.index_select(0, row_N) == targets_N[:, None]  # a drawn word that is the right one is no rival
    others_NK = others_NK.masked_fill(hit_NK, -torch.inf)
    wide = torch.promote_types(right_N.dtype, torch.float32)
    every = torch.logaddexp(right_N.to(wide), others_NK.to(wide).logsumexp(1))
    return (every - right_N.to(wide)).sum()
