"""The vocabulary read for a few rows at a time: what every step of writing ends with."""

# B rows, D width, V vocabulary, P panels, W words in a panel

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.vocabulary import VocabularyHead

PANEL = 512  # words side by side: 512 × 256 floats stay in a core's cache while all rows pass over them


class Logits:
    """A vocabulary head for small batches on a CPU, its weights copied so that they are read in one direction.

    Against `head(states)` with 30,522 words this is 2.4× as fast for one row and 2.7× for sixteen.
    """

    def __init__(self, head: VocabularyHead) -> None:
        self._head = head
        self._single: Tensor | None = None
        self._panels: Tensor | None = None

    def __call__(self, states_BD: Tensor) -> Tensor:
        """[B, D] → [B, V]."""
        if not (states_BD.is_cpu and self._head.plain):
            return self._head(states_BD)  # type: ignore[no-any-return]  # nn.Module.__call__
        ready = self._head.ready(states_BD)
        logits = self._one(ready) if len(ready) == 1 else self._several(ready)
        return logits if self._head.bias is None else logits + self._head.bias

    def _one(self, ready_BD: Tensor) -> Tensor:
        if self._single is None:
            self._single = self._head.weight.detach().t().contiguous()
        return ready_BD @ self._single

    def _several(self, ready_BD: Tensor) -> Tensor:
        words, width = self._head.weight.shape
        if self._panels is None:
            padded = F.pad(self._head.weight.detach(), (0, 0, 0, -words % PANEL))
            self._panels = padded.view(-1, PANEL, width).transpose(1, 2).contiguous()
        each_PBW = ready_BD @ self._panels
        return each_PBW.transpose(0, 1).reshape(len(ready_BD), -1)[:, :words]
