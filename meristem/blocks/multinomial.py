"""Multinomial sampling over a vocabulary by inverse transform: the cumulative sum inverted at given uniforms."""

# V vocabulary, N samples, K blocks of W tokens

from __future__ import annotations

import math

import torch
from torch import Tensor


def sample_multinomial(weights_VN: Tensor, uniform_N: Tensor) -> Tensor:
    """Token ids [N]: per column the first whose cumulative weight exceeds `uniform` times the column's total.

    Weights need not sum to one. Blocks of √V tokens are summed first and only the block that is hit is searched, so
    that the vocabulary is read once and its cumulative sum is never stored.
    """
    vocab_size = len(weights_VN)
    block_size = math.isqrt(vocab_size)
    blocks_KN = _block_sums(weights_VN, block_size)
    cumulative_KN = blocks_KN.cumsum(0)
    target_N = uniform_N.to(blocks_KN.dtype) * cumulative_KN[-1]
    block_1N = _first_exceeding(cumulative_KN, target_N)[None]
    preceding_N = (cumulative_KN.gather(0, block_1N) - blocks_KN.gather(0, block_1N))[0]
    index_WN = block_1N * block_size + torch.arange(block_size, device=weights_VN.device)[:, None]
    inside_WN = weights_VN.gather(0, index_WN.clamp(max=vocab_size - 1)).to(blocks_KN.dtype)
    inside_WN = inside_WN.masked_fill(index_WN >= vocab_size, 0.0)
    return block_1N[0] * block_size + _first_exceeding(inside_WN.cumsum(0), target_N - preceding_N)


def _block_sums(weights_VN: Tensor, block_size: int) -> Tensor:
    """Sums [K, N] of blocks of `block_size` tokens, the last block may be shorter; in float32 at least."""
    full_length = len(weights_VN) // block_size * block_size
    wide_dtype = torch.promote_types(weights_VN.dtype, torch.float32)
    blocks_KN = weights_VN[:full_length].view(full_length // block_size, block_size, -1).sum(1, dtype=wide_dtype)
    if full_length == len(weights_VN):
        return blocks_KN
    return torch.cat([blocks_KN, weights_VN[full_length:].sum(0, keepdim=True, dtype=wide_dtype)])


def _first_exceeding(cumulative: Tensor, target_N: Tensor) -> Tensor:
    """Index of the first row whose cumulative sum exceeds the target; rounding never selects a row of weight zero."""
    below = cumulative[-1] * (1 - torch.finfo(cumulative.dtype).eps)
    return (cumulative <= target_N.clamp(min=0).minimum(below)).sum(0)
