"""Positions as a bias on attention scores: learned per head and bucket of distance (Raffel et al. 2020 §2.1)."""

# H heads, T queries, S keys, N distances

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from meristem.blocks.sight import Sight


class RelativeBias(nn.Module):
    """One number per head and bucket; near distances have buckets of their own, far ones share them by logarithm."""

    def __init__(self, heads: int, buckets: int, farthest: int, *, both_ways: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.farthest, self.both_ways = buckets, farthest, both_ways

    def bucket(self, distance: Tensor) -> Tensor:
        """Key position less query position → bucket; keys ahead have the upper half, or none where none are seen."""
        each = self.buckets // 2 if self.both_ways else self.buckets
        ahead = (distance > 0) * each if self.both_ways else torch.zeros_like(distance)
        far = distance.abs() if self.both_ways else (-distance).clamp(min=0)
        exact = each // 2
        steps = torch.log(far.clamp(min=1) / exact) / math.log(self.farthest / exact) * (each - exact)
        return ahead + torch.where(far < exact, far, (exact + steps.long()).clamp(max=each - 1))

    def by_distance(self, distance_N: Tensor) -> Tensor:
        """[H, N] the bias of keys at these distances from their query."""
        bias_NH: Tensor = self.table(self.bucket(distance_N))
        return bias_NH.t()

    def forward(self, sight: Sight, queries: int, keys: int) -> Sight:
        """The same sight with the bias in its mask, for queries and keys that both begin at position 0."""
        distance_N = torch.arange(1 - queries, keys, device=self.table.weight.device)
        # every query sees the same line of biases, one step further on: windows of it, the last query's first
        bias_HTS = self.by_distance(distance_N).unfold(1, keys, 1).flip(1)
        if sight.causal:
            later = torch.ones(queries, keys, dtype=torch.bool, device=bias_HTS.device).triu(1)
            bias_HTS = bias_HTS.masked_fill(later, -torch.inf)
        return Sight(mask=bias_HTS[None] if sight.mask is None else bias_HTS + sight.mask)
