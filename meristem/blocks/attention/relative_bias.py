"""T5 relative position bias: a learned bias per head and distance bucket (Raffel et al. 2020, §2.1)."""

# H heads, T queries, S keys, N distances

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from meristem.blocks.attention.attention_mask import AttentionMask


class RelativeBias(nn.Module):
    """One scalar per head and bucket; small distances have their own buckets, large ones share logarithmic buckets."""

    def __init__(self, num_heads: int, num_buckets: int, max_distance: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(num_buckets, num_heads)
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional

    def distance_bucket(self, distance: Tensor) -> Tensor:
        """Key position minus query position → bucket index; if bidirectional, later keys use the upper half."""
        direction_buckets = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        direction_offset = (distance > 0) * direction_buckets if self.bidirectional else torch.zeros_like(distance)
        magnitude = distance.abs() if self.bidirectional else (-distance).clamp(min=0)
        num_exact = direction_buckets // 2
        log_offset = (
            torch.log(magnitude.clamp(min=1) / num_exact)
            / math.log(self.max_distance / num_exact)
            * (direction_buckets - num_exact)
        )
        return direction_offset + torch.where(
            magnitude < num_exact, magnitude, (num_exact + log_offset.long()).clamp(max=direction_buckets - 1)
        )

    def bias_by_distance(self, distance_N: Tensor) -> Tensor:
        """[H, N] bias of keys at these distances from the query."""
        bias_NH: Tensor = self.table(self.distance_bucket(distance_N))
        return bias_NH.t()

    def forward(self, mask: AttentionMask, num_queries: int, num_keys: int) -> AttentionMask:
        """The attention mask with the bias added, for queries and keys that both start at position 0."""
        distance_N = torch.arange(1 - num_queries, num_keys, device=self.table.weight.device)
        # the biases of each query are a window of one sequence, shifted by one: unfold gives the last query's first
        bias_HTS = self.bias_by_distance(distance_N).unfold(1, num_keys, 1).flip(1)
        if mask.is_causal:
            future = torch.ones(num_queries, num_keys, dtype=torch.bool, device=bias_HTS.device).triu(1)
            bias_HTS = bias_HTS.masked_fill(future, -torch.inf)
        return AttentionMask(
            additive_mask=bias_HTS[None] if mask.additive_mask is None else bias_HTS + mask.additive_mask
        )
