"""Attention masks: causal, padding, document boundaries, sliding window, and the offset of a KV cache."""

# B batch, T queries, S keys

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class AttentionMask:
    """Attention mask of a forward pass: additive [B or 1, 1, T, S], or plain causal, or none."""

    additive_mask: Tensor | None = None
    is_causal: bool = False
    attention_weights: list[Tensor] | None = None
    """If given, each attention layer of the forward pass appends its weights [B, H, T, S] to this list."""


@dataclass(frozen=True, kw_only=True)
class MaskSpec:
    """What an attention mask is built from: lengths, causality, padding, documents."""

    num_queries: int
    num_keys: int
    causal: bool | Tensor
    """Whether a query sees no later key; as [B, 1] booleans for rows of both modes in one batch."""
    dtype: torch.dtype
    device: torch.device
    query_positions: Tensor | None = None
    """[B, T] positions of the queries among the keys; None means the last `num_queries` of them."""
    present: Tensor | None = None
    """[B, S] padding mask: true at keys that are not padding."""
    documents: Tensor | None = None
    """[B, S] document index of each position, where attention must not cross document boundaries."""

    def build_mask(self, window: int | None = None) -> AttentionMask:
        """The mask of a layer; with a sliding window, only keys at a distance below `window` are visible."""
        if self._needs_no_mask and (window is None or window >= self.num_keys):
            return AttentionMask(is_causal=bool(self.causal) and self.num_queries > 1)
        visible = self._visible_keys(window)
        return AttentionMask(
            additive_mask=torch.zeros_like(visible, dtype=self.dtype).masked_fill_(~visible, -torch.inf)
        )

    @property
    def _needs_no_mask(self) -> bool:
        aligned = self.query_positions is None and (
            self.num_queries == self.num_keys or self.num_queries == 1 or not self.causal
        )
        return aligned and self.present is None and self.documents is None and isinstance(self.causal, bool)

    def _visible_keys(self, window: int | None) -> Tensor:
        """[B or 1, 1, T, S], true where a query may attend to a key."""
        key_S = torch.arange(self.num_keys, device=self.device)
        query_BT = (
            self.query_positions
            if self.query_positions is not None
            else key_S[None, self.num_keys - self.num_queries :]
        )
        distance = query_BT[:, :, None] - key_S[None, None, :]
        if isinstance(self.causal, Tensor):
            visible = (distance >= 0) | ~self.causal[:, :, None]
        else:
            visible = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if window is not None:
            visible = visible & (distance.abs() < window)
        if self.present is not None:
            visible = visible & self.present[:, None, :]
        if self.documents is not None:
            visible = visible & (self.documents[:, -self.num_queries :, None] == self.documents[:, None, :])
        visible = visible | (distance == 0)  # padding that may attend to no key still needs a finite softmax
        return visible[:, None]
