"""Segment memory of Transformer-XL: cached hidden states of the previous segment (Dai et al. 2019, §3.2)."""

# B batch, N layers, M memory slots, T tokens, D hidden size

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.interfaces.backbone import State

EMPTY_SLOT = -1  # document index of an empty slot


@dataclass(frozen=True, kw_only=True)
class SegmentMemory:
    """Memory of one forward pass, without gradient.

    The number of slots is fixed, and they are filled from the right. `documents` [B, M] is the document of each slot,
    EMPTY_SLOT where it is empty: empty slots are masked, so that a fresh row equals one without memory.
    """

    states: Tensor
    """[B, N, M, D]"""
    documents: Tensor
    """[B, M]"""

    @classmethod
    def from_state(cls, state: State | None, fresh_B1: Tensor | None) -> SegmentMemory | None:
        """The memory in a state; it is cleared in rows where `fresh` is true."""
        if not state:
            return None
        states, documents = state["memory"], state["documents"]
        if fresh_B1 is not None:
            states = states.masked_fill(fresh_B1[:, :, None, None], 0)
            documents = documents.masked_fill(fresh_B1, EMPTY_SLOT)
        return cls(states=states, documents=documents)

    @classmethod
    def empty(cls, x_BTD: Tensor, num_layers: int, num_slots: int) -> SegmentMemory:
        """Memory with empty slots."""
        batch_size, _, hidden_size = x_BTD.shape
        empty_slots = torch.full((batch_size, num_slots), EMPTY_SLOT, dtype=torch.long, device=x_BTD.device)
        return cls(states=x_BTD.new_zeros(batch_size, num_layers, num_slots, hidden_size), documents=empty_slots)

    @property
    def state(self) -> State:
        """The memory as a state, to be passed to the next forward pass."""
        return {"memory": self.states, "documents": self.documents}

    def next_state(
        self, layer_inputs: Sequence[Tensor], present_BT: Tensor | None, documents_BT: Tensor | None, num_slots: int
    ) -> State:
        """The state after this segment: the last `num_slots` of old memory and the inputs of every layer."""
        latest = (
            [x.detach()[:, -num_slots:] for x in layer_inputs]
            if present_BT is None
            else [x.detach() for x in layer_inputs]
        )
        states = torch.cat([self.states, torch.stack(latest, 1).to(self.states.dtype)], 2)
        batch_size, num_tokens = layer_inputs[0].shape[:2]
        segment_documents = (
            documents_BT if documents_BT is not None else self.documents.new_zeros(batch_size, num_tokens)
        )
        documents = torch.cat([self.documents, segment_documents[:, -latest[0].shape[1] :]], 1)
        if present_BT is None:
            return {
                "memory": states[:, :, -num_slots:].contiguous(),
                "documents": documents[:, -num_slots:].contiguous(),
            }
        # rows are padded on the right: each takes the slots up to its own last token
        first_B1 = self.documents.shape[1] + present_BT.sum(1, keepdim=True) - num_slots
        index_BM = first_B1 + torch.arange(num_slots, device=first_B1.device)
        memory = states.gather(2, index_BM[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3]))
        return {"memory": memory, "documents": documents.gather(1, index_BM)}
