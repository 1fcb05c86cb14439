"""Attention masks of Transformer-XL and XLNet: memory, causality, padding, documents, segments, permutation order."""

# B batch, T tokens, K query slots, M memory slots, S = M + T keys

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.blocks.attention.relative_attention import ContiguousShift, IndexedShift, RelativeMask
from meristem.blocks.transformer.segment_memory import EMPTY_SLOT, SegmentMemory


@dataclass(frozen=True, kw_only=True)
class RelativeMaskSpec:
    """What the masks of one forward pass are built from; the content and query streams get different masks."""

    num_tokens: int
    causal: bool
    device: torch.device
    dtype: torch.dtype
    memory: SegmentMemory | None = None
    window: int | None = None
    """Sliding window: only keys at a smaller distance are visible."""
    present: Tensor | None = None
    """[B, T] padding mask: true at tokens that are not padding."""
    documents: Tensor | None = None
    """[B, T] document index, where attention must not cross document boundaries."""
    segments: Tensor | None = None
    """[B, T] segment ids; memory counts as segment 0."""
    order: Tensor | None = None
    """[B, T] each token's index in the factorization order (XLNet)."""

    @property
    def memory_length(self) -> int:
        """Number of memory slots M before the tokens."""
        return 0 if self.memory is None else self.memory.documents.shape[1]

    @property
    def distances(self) -> Tensor:
        """[L] distances from the farthest past key to the farthest future one, and one more for the shift."""
        last = -2 if self.causal else -1 - self.num_tokens
        return torch.arange(self.memory_length + self.num_tokens - 1, last, -1, device=self.device)

    def content_mask(self) -> RelativeMask:
        """Mask of the content stream: the tokens in order, each of which can always attend to itself."""
        positions = torch.arange(self.num_tokens, device=self.device)
        masked = self._masked(positions[None], strictly=False)
        if masked is not None:
            is_self = positions[:, None] + self.memory_length == torch.arange(
                self.memory_length + self.num_tokens, device=self.device
            )
            masked = masked & ~is_self
        return RelativeMask(
            shift=ContiguousShift(), masked=masked, different_segment=self._different_segment(self.segments)
        )

    def query_mask(self, slots_BK: Tensor) -> RelativeMask:
        """Mask of XLNet's query stream: each slot [B, K] knows its position but not its token, and attends only to
        tokens earlier in the factorization order."""
        masked = self._masked(slots_BK, strictly=True)
        assert masked is not None
        return RelativeMask(
            shift=IndexedShift.from_positions(slots_BK, self.num_tokens, self.memory_length + self.num_tokens),
            masked=masked,
            fully_masked=masked.all(-1),
            different_segment=self._different_segment(
                None if self.segments is None else self.segments.gather(1, slots_BK)
            ),
        )

    def _masked(self, positions_BK: Tensor, *, strictly: bool) -> Tensor | None:
        """[B or 1, K, S] true at keys that queries at these positions must not attend to."""
        optional_masks = [
            self._masked_by_distance(positions_BK),
            self._masked_memory(positions_BK),
            self._masked_tokens(positions_BK, strictly),
        ]
        masks = [mask for mask in optional_masks if mask is not None]
        if not masks:
            return None
        masked = masks[0]
        for mask in masks[1:]:
            masked = masked | mask
        return masked

    def _masked_by_distance(self, positions_BK: Tensor) -> Tensor | None:
        if not self.causal and self.window is None:
            return None
        distance = (
            positions_BK[:, :, None]
            + self.memory_length
            - torch.arange(self.memory_length + self.num_tokens, device=self.device)
        )
        masked = distance < 0 if self.causal else torch.zeros_like(distance, dtype=torch.bool)
        return masked if self.window is None else masked | (distance.abs() >= self.window)

    def _masked_memory(self, positions_BK: Tensor) -> Tensor | None:
        """True at memory slots that are empty or hold another document."""
        if self.memory is None:
            return None
        slot_documents = self.memory.documents[:, None]
        masked = slot_documents == EMPTY_SLOT
        if self.documents is not None:
            masked = masked | (
                slot_documents != self.documents.gather(1, positions_BK.expand(len(slot_documents), -1))[:, :, None]
            )
        return _pad_keys(masked, 0, self.num_tokens)

    def _masked_tokens(self, positions_BK: Tensor, strictly: bool) -> Tensor | None:
        """True at padding, other documents, and tokens later in the factorization order."""
        masked = None if self.present is None else ~self.present[:, None]
        if self.documents is not None:
            query_documents = self.documents.gather(1, positions_BK.expand(len(self.documents), -1))[:, :, None]
            masked = _or_masks(masked, query_documents != self.documents[:, None])
        if self.order is not None:
            query_order = self.order.gather(1, positions_BK.expand(len(self.order), -1))[:, :, None]
            key_order = self.order[:, None]
            masked = _or_masks(masked, key_order >= query_order if strictly else key_order > query_order)
        return None if masked is None else _pad_keys(masked, self.memory_length, 0)

    def _different_segment(self, query_segments_BK: Tensor | None) -> Tensor | None:
        if self.segments is None or query_segments_BK is None:
            return None
        key_segments = torch.nn.functional.pad(self.segments, (self.memory_length, 0))
        return (query_segments_BK[:, :, None] != key_segments[:, None]).to(self.dtype)


def _or_masks(first: Tensor | None, second: Tensor) -> Tensor:
    return second if first is None else first | second


def _pad_keys(masked: Tensor, before: int, after: int) -> Tensor:
    """The mask with unmasked keys added before and after."""
    return torch.nn.functional.pad(masked, (before, after)) if before or after else masked
