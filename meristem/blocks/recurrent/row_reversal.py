"""Reversal of padded rows for bidirectional LSTMs: each row is reversed within its own length."""

# B batch, T tokens, D hidden size; layout is [2 directions, time, batch, hidden]

from __future__ import annotations

import torch
from torch import Tensor


class RowReversal:
    """Index of the reversed order of each row, and the steps at which a new document resets the state."""

    def __init__(
        self, batch_size: int, num_tokens: int, present_BT: Tensor | None, documents_BT: Tensor | None
    ) -> None:
        self._batch_size, self._num_tokens = batch_size, num_tokens
        self._lengths = None if present_BT is None else present_BT.sum(1)
        self._order: Tensor | None = None
        if self._lengths is not None:
            positions = torch.arange(num_tokens, device=self._lengths.device)[:, None]
            step_TB = torch.where(positions < self._lengths, self._lengths - 1 - positions, positions)
            self._order = (step_TB * batch_size + torch.arange(batch_size, device=positions.device)).flatten()
        self.continues = None if documents_BT is None else self._continues_document(documents_BT)

    def split_directions(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [2, T, B, D]."""
        forward = x_BTD.transpose(0, 1)
        return torch.stack([forward, self._reverse(forward)])

    def merge_directions(self, x_2TBD: Tensor) -> Tensor:
        """[2, T, B, D] → [B, T, 2 D], both directions concatenated at each position."""
        forward, backward = x_2TBD.unbind(0)
        return torch.cat([forward, self._reverse(backward)], -1).transpose(0, 1)

    def final_states(self, x_2TBD: Tensor) -> Tensor:
        """State of each direction after its last step [B, 2, D], without gradient."""
        if self._lengths is None:
            return x_2TBD[:, -1].detach().transpose(0, 1)
        rows = torch.arange(self._batch_size, device=self._lengths.device)
        return x_2TBD[:, self._lengths - 1, rows].detach().transpose(0, 1)

    def _reverse(self, x_TBD: Tensor) -> Tensor:
        """Rows reversed within their lengths; applying it twice gives the input."""
        if self._order is None:
            return x_TBD.flip(0)
        return x_TBD.reshape(self._num_tokens * self._batch_size, -1).index_select(0, self._order).view(x_TBD.shape)

    def _continues_document(self, documents_BT: Tensor) -> Tensor:
        """[2, T, B, 1]: whether a step belongs to the same document as the one before it; true for the first."""
        documents_2TB1 = self.split_directions(documents_BT[..., None])
        return torch.cat(
            [torch.ones_like(documents_2TB1[:, :1], dtype=torch.bool), documents_2TB1[:, 1:] == documents_2TB1[:, :-1]],
            1,
        )
