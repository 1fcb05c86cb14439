"""Incremental decoding of a recurrent backbone: its own forward pass with a state of fixed size, one token per step."""

# B batch, T tokens, D hidden size

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from meristem.blocks.incremental.state_concat import concat_states
from meristem.interfaces.backbone import Backbone, State


class RecurrentIncrementalDecoder:
    """Incremental decoder of a causal backbone that takes and returns a state; the length is unlimited."""

    max_length: int | None = None

    def __init__(self, backbone: Backbone, zero_state: Callable[[int], State]) -> None:
        self._backbone, self._zero_state = backbone, zero_state

    def init_state(self, batch_size: int, capacity: int, **inputs: Tensor) -> State:
        """Zero states."""
        return self._zero_state(batch_size)

    def grow_state(self, state: State, capacity: int) -> State:
        """The same state: a recurrent state has a fixed size."""
        return state

    def concat_states(self, first: State, second: State) -> State:
        """The rows of both states."""
        return concat_states(first, second)

    def prefill(self, tokens_BT: Tensor, lengths_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Process prompts padded on the right → hidden states [B, D] of each row's last token, and the new state."""
        present_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device) < lengths_B[:, None]
        hidden = self._backbone(tokens=tokens_BT, present=present_BT, causal=True, state=state)
        return hidden.last_hidden_state[
            torch.arange(len(lengths_B), device=lengths_B.device), lengths_B - 1
        ], hidden.state

    def decode_step(self, tokens_B: Tensor, state: State, shared_length: int | None) -> tuple[Tensor, State]:
        """Process one token per row."""
        hidden = self._backbone(tokens=tokens_B[:, None], causal=True, state=state)
        return hidden.last_hidden_state[:, 0], hidden.state
