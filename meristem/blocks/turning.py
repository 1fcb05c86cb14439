"""Rows for two directions: one reads them as they are, the other from each row's own end."""

# B batch, T tokens, D width; two directions stand first, time before rows

from __future__ import annotations

import torch
from torch import Tensor


class Turn:
    """Which step of the backward direction is which position, and where each direction begins anew."""

    def __init__(self, rows: int, time: int, present_BT: Tensor | None, documents_BT: Tensor | None) -> None:
        self._rows, self._time = rows, time
        self._sizes = None if present_BT is None else present_BT.sum(1)
        self._order: Tensor | None = None
        if self._sizes is not None:
            at = torch.arange(time, device=self._sizes.device)[:, None]
            step_TB = torch.where(at < self._sizes, self._sizes - 1 - at, at)
            self._order = (step_TB * rows + torch.arange(rows, device=at.device)).flatten()
        self.going_on = None if documents_BT is None else self._same(documents_BT)

    def apart(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [2, T, B, D]."""
        forward = x_BTD.transpose(0, 1)
        return torch.stack([forward, self._turned(forward)])

    def together(self, x_2TBD: Tensor) -> Tensor:
        """[2, T, B, D] → [B, T, 2 D], both directions' knowledge of a position side by side."""
        forward, backward = x_2TBD.unbind(0)
        return torch.cat([forward, self._turned(backward)], -1).transpose(0, 1)

    def ends(self, x_2TBD: Tensor) -> Tensor:
        """What each direction held after its last step [B, 2, D], without gradient."""
        if self._sizes is None:
            return x_2TBD[:, -1].detach().transpose(0, 1)
        rows = torch.arange(self._rows, device=self._sizes.device)
        return x_2TBD[:, self._sizes - 1, rows].detach().transpose(0, 1)

    def _turned(self, x_TBD: Tensor) -> Tensor:
        """Turned round, or turned back: it is the same."""
        if self._order is None:
            return x_TBD.flip(0)
        return x_TBD.reshape(self._time * self._rows, -1).index_select(0, self._order).view(x_TBD.shape)

    def _same(self, documents_BT: Tensor) -> Tensor:
        """[2, T, B, 1]: whether a step reads the same document as the one before it; the first goes on."""
        read = self.apart(documents_BT[..., None])
        return torch.cat([torch.ones_like(read[:, :1], dtype=torch.bool), read[:, 1:] == read[:, :-1]], 1)
