"""Exact draws from distributions over a vocabulary, by inverting the running sum at given uniforms."""

# V vocabulary, N draws, K blocks of W words

from __future__ import annotations

import math

import torch
from torch import Tensor


def drawn(shares_VN: Tensor, uniform_N: Tensor) -> Tensor:
    """Per column the word at which the running sum of its shares passes `uniform` of their whole; [N].

    Shares need not sum to one. Blocks of √V words are summed first and only the one that is hit is looked into, so
    that the whole vocabulary is read once and no running sum over it is ever kept.
    """
    words = len(shares_VN)
    size = math.isqrt(words)
    blocks_KN = _blocks(shares_VN, size)
    running_KN = blocks_KN.cumsum(0)
    target_N = uniform_N.to(blocks_KN.dtype) * running_KN[-1]
    block_1N = _passed(running_KN, target_N)[None]
    before_N = (running_KN.gather(0, block_1N) - blocks_KN.gather(0, block_1N))[0]
    at_WN = block_1N * size + torch.arange(size, device=shares_VN.device)[:, None]
    inside_WN = shares_VN.gather(0, at_WN.clamp(max=words - 1)).to(blocks_KN.dtype)
    inside_WN = inside_WN.masked_fill(at_WN >= words, 0.0)
    return block_1N[0] * size + _passed(inside_WN.cumsum(0), target_N - before_N)


def _blocks(shares_VN: Tensor, size: int) -> Tensor:
    """The sum of each `size` words, the last block perhaps of fewer; never in half precision."""
    whole, wide = len(shares_VN) // size * size, torch.promote_types(shares_VN.dtype, torch.float32)
    blocks_KN = shares_VN[:whole].view(whole // size, size, -1).sum(1, dtype=wide)
    if whole == len(shares_VN):
        return blocks_KN
    return torch.cat([blocks_KN, shares_VN[whole:].sum(0, keepdim=True, dtype=wide)])


def _passed(running: Tensor, target_N: Tensor) -> Tensor:
    """The first row whose running sum exceeds the target; rounding may not lead to a share of nothing."""
    below = running[-1] * (1 - torch.finfo(running.dtype).eps)
    return (running <= target_N.clamp(min=0).minimum(below)).sum(0)
