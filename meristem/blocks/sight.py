"""What each position may see: causality, padding, documents kept apart, bands, and a cache's past."""

# B batch, T queries, S keys

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One mask for a whole forward pass: additive [B or 1, 1, T, S], or none, or plainly causal."""

    mask: Tensor | None = None
    causal: bool = False
    weights: list[Tensor] | None = None
    """Where each attention of this forward pass appends its weights [B, H, T, S]; none unless they are wanted."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The facts that decide who sees whom."""

    queries: int
    keys: int
    causal: bool
    dtype: torch.dtype
    device: torch.device
    positions: Tensor | None = None
    """[B, T] where the queries stand among the keys; none means the last `queries` of them."""
    present: Tensor | None = None
    """[B, S] keys that exist."""
    documents: Tensor | None = None
    """[B, S] the document of each position, when documents must not see each other."""

    def sight(self, window: int | None = None) -> Sight:
        """The mask of a layer; with a window, only keys less than that far away are seen."""
        if self._plain and (window is None or window >= self.keys):
            return Sight(causal=self.causal and self.queries > 1)
        visible = self._visible(window)
        return Sight(mask=torch.zeros_like(visible, dtype=self.dtype).masked_fill_(~visible, -torch.inf))

    @property
    def _plain(self) -> bool:
        aligned = self.positions is None and (self.queries == self.keys or self.queries == 1 or not self.causal)
        return aligned and self.present is None and self.documents is None

    def _visible(self, window: int | None) -> Tensor:
        """[B or 1, 1, T, S], true where a query sees a key."""
        key_S = torch.arange(self.keys, device=self.device)
        query_BT = self.positions if self.positions is not None else key_S[None, self.keys - self.queries :]
        distance = query_BT[:, :, None] - key_S[None, None, :]
        visible = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if window is not None:
            visible = visible & (distance.abs() < window)
        if self.present is not None:
            visible = visible & self.present[:, None, :]
        if self.documents is not None:
            visible = visible & (self.documents[:, -self.queries :, None] == self.documents[:, None, :])
        visible = visible | (distance == 0)  # padding out of every key's reach still needs a finite softmax
        return visible[:, None]
