"""What the segment before left behind: states of every layer that the next one can look back at (Dai et al. §3.2)."""

# B rows, N layers, M slots of memory, T tokens, D width

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.batch import State

NOTHING = -1  # the document of a slot that holds nothing


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """The memory of one forward pass; no gradient ever enters it.

    Slots are filled from the right and there are always as many. `documents` [B, M] tells which document a slot is of,
    and NOTHING where it is empty: such slots are out of sight, so that a fresh row equals one without memory.
    """

    states: Tensor
    """[B, N, M, D]"""
    documents: Tensor
    """[B, M]"""

    @classmethod
    def of(cls, state: State | None, fresh_B1: Tensor | None) -> Recurrence | None:
        """What a state holds; rows that start anew forget it."""
        if not state:
            return None
        states, documents = state["memory"], state["documents"]
        if fresh_B1 is not None:
            states = states.masked_fill(fresh_B1[:, :, None, None], 0)
            documents = documents.masked_fill(fresh_B1, NOTHING)
        return cls(states=states, documents=documents)

    @classmethod
    def empty(cls, x_BTD: Tensor, layers: int, slots: int) -> Recurrence:
        """Memory that holds nothing yet."""
        rows, _, width = x_BTD.shape
        nothing = torch.full((rows, slots), NOTHING, dtype=torch.long, device=x_BTD.device)
        return cls(states=x_BTD.new_zeros(rows, layers, slots, width), documents=nothing)

    @property
    def state(self) -> State:
        """As it travels between forward passes."""
        return {"memory": self.states, "documents": self.documents}

    def followed(
        self, inputs: Sequence[Tensor], present_BT: Tensor | None, documents_BT: Tensor | None, slots: int
    ) -> State:
        """The state after this segment: the last `slots` of what was remembered and what every layer read."""
        latest = [x.detach()[:, -slots:] for x in inputs] if present_BT is None else [x.detach() for x in inputs]
        states = torch.cat([self.states, torch.stack(latest, 1).to(self.states.dtype)], 2)
        rows, time = inputs[0].shape[:2]
        here = documents_BT if documents_BT is not None else self.documents.new_zeros(rows, time)
        documents = torch.cat([self.documents, here[:, -latest[0].shape[1] :]], 1)
        if present_BT is None:
            return {"memory": states[:, :, -slots:].contiguous(), "documents": documents[:, -slots:].contiguous()}
        # padding stands at the end of short rows: each takes what ends at its last token
        first_B1 = self.documents.shape[1] + present_BT.sum(1, keepdim=True) - slots
        at_BM = first_B1 + torch.arange(slots, device=first_B1.device)
        taken = states.gather(2, at_BM[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3]))
        return {"memory": taken, "documents": documents.gather(1, at_BM)}
