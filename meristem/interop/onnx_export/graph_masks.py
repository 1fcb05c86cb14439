"""Attention masks of ONNX graphs, computed with tensor operations for any size."""

# B batch, T queries, S keys, H heads

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.attention.multi_head import LayerKVCache
from meristem.blocks.attention.relative_bias import RelativeBias


@dataclass(frozen=True, kw_only=True)
class ConcatKVCache(LayerKVCache):
    """A KV cache that grows by concatenation, where a decode session writes into slots."""

    present: list[Tensor]
    """Keys and values of all layers so far, in order."""

    @classmethod
    def for_layer(cls, keys: Tensor, values: Tensor, positions_BT: Tensor, present: list[Tensor]) -> ConcatKVCache:
        """The cache of one layer."""
        return cls(keys=keys, values=values, positions=positions_BT, shared_start=None, num_filled=0, present=present)

    def update(self, k_BGTC: Tensor, v_BGTC: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values so far, which are also the outputs."""
        keys, values = torch.cat([self.keys, k_BGTC], 2), torch.cat([self.values, v_BGTC], 2)
        self.present.extend([keys, values])
        return keys, values


class CausalMasks:
    """Causal mask of the last T of S tokens: each attends to itself and earlier tokens that are not padding.

    A token's position is the number of non-padding tokens before it, so that padding may be on either side, and
    between a prompt and the tokens generated after it.
    """

    def __init__(self, present_BS: Tensor, time: int) -> None:
        valid_BS = present_BS > 0
        self.positions_BS = (valid_BS.to(torch.int64).cumsum(1) - 1).clamp(min=0)
        self.positions_BT = self.positions_BS[:, -time:]
        self.distances_BTS = self.positions_BT[:, :, None] - self.positions_BS[:, None]
        index_S = torch.arange(present_BS.shape[1], device=present_BS.device)
        offset_TS = index_S[-time:, None] - index_S
        self._self_mask = offset_TS == 0
        self._visible_mask = (offset_TS >= 0) & valid_BS[:, None]

    def hidden_mask(self, window: int | None = None) -> Tensor:
        """[B, 1, T, S] True where attention is masked; padding attends to itself, for a finite softmax."""
        visible = self._visible_mask if window is None else self._visible_mask & (self.distances_BTS < window)
        return ~(visible | self._self_mask)[:, None]

    def attention_mask(self, window: int | None, dtype: torch.dtype) -> AttentionMask:
        """The attention mask of a layer."""
        return AttentionMask(additive_mask=additive_mask(self.hidden_mask(window), dtype))


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """−∞ where masked, else 0."""
    return torch.zeros_like(hidden, dtype=dtype).masked_fill(hidden, -torch.inf)


class BucketLookupBias(RelativeBias):
    """A relative position bias with precomputed buckets, so that rounding of a logarithm cannot change one."""

    line: Tensor

    def __init__(self, relative: RelativeBias) -> None:
        super().__init__(
            relative.table.embedding_dim,
            relative.num_buckets,
            relative.max_distance,
            bidirectional=relative.bidirectional,
        )
        self.table = relative.table
        all_distances = torch.arange(-self.max_distance, self.max_distance + 1, device=self.table.weight.device)
        self.register_buffer("line", relative.distance_bucket(all_distances), persistent=False)

    def distance_bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance; all beyond the maximum distance are equal."""
        return self.line[distance.clamp(-self.max_distance, self.max_distance) + self.max_distance]

    def bias_at(self, distance_TS: Tensor) -> Tensor:
        """[1, H, T, S] the bias of each key for each query."""
        return self.table(self.distance_bucket(distance_TS)).permute(2, 0, 1)[None]  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(self, mask: AttentionMask, num_queries: int, num_keys: int) -> AttentionMask:
        """The mask with the bias added, computed per distance instead of from views of one row."""
        assert mask.additive_mask is not None
        key_S = torch.arange(num_keys, device=mask.additive_mask.device)
        return AttentionMask(additive_mask=self.bias_at(key_S - key_S[:num_queries, None]) + mask.additive_mask)
