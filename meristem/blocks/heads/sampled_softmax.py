"""Sampled softmax (Jean et al. 2015): the vocabulary loss against negatives from a log-uniform distribution."""

# B batch, T tokens, D hidden size, N predictions, K negatives per row, V vocabulary

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.heads.vocabulary import VocabularyHead


def log_expected_count(token_ids: Tensor, num_sampled: int, vocab_size: int) -> Tensor:
    """log of a token's expected count among `num_sampled`: p(w) = log((w + 2) / (w + 1)) / log(V + 1)."""
    return (torch.log1p(1 / (token_ids.double() + 1)) * (num_sampled / math.log(vocab_size + 1))).log()


def sampled_softmax_loss(
    head: VocabularyHead, states_BTD: Tensor, positions_N: Tensor, targets_N: Tensor, sampled_ids_BK: Tensor
) -> Tensor:
    """Summed loss Σ log(e^target + Σ e^negative / expected count) − target; the inner sum estimates the full one.

    Each target is compared with the negatives of its own row, so that rows do not depend on each other.
    """
    hidden, num_sampled, vocab_size = head.apply_transform(states_BTD), sampled_ids_BK.shape[1], len(head.weight)
    batch_size, num_tokens, _ = states_BTD.shape
    sampled_logits_BTK = hidden @ F.embedding(sampled_ids_BK, head.weight).mT
    bias = torch.zeros_like(head.weight[:, 0]) if head.bias is None else head.bias
    correction = bias[sampled_ids_BK] - log_expected_count(sampled_ids_BK, num_sampled, vocab_size).to(hidden.dtype)
    target_logits_N = (
        hidden.reshape(batch_size * num_tokens, -1).index_select(0, positions_N) * F.embedding(targets_N, head.weight)
    ).sum(-1)
    target_logits_N = target_logits_N + bias[targets_N]
    row_N = positions_N // num_tokens
    sampled_logits_NK = sampled_logits_BTK.view(batch_size * num_tokens, num_sampled).index_select(
        0, positions_N
    ) + correction.index_select(0, row_N)
    # a negative that is the target itself does not count
    is_target_NK = sampled_ids_BK.index_select(0, row_N) == targets_N[:, None]
    sampled_logits_NK = sampled_logits_NK.masked_fill(is_target_NK, -torch.inf)
    wide_dtype = torch.promote_types(target_logits_N.dtype, torch.float32)
    log_normalizer = torch.logaddexp(target_logits_N.to(wide_dtype), sampled_logits_NK.to(wide_dtype).logsumexp(1))
    return (log_normalizer - target_logits_N.to(wide_dtype)).sum()
