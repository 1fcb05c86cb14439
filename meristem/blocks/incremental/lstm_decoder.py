"""Incremental decoding with the forward half of a bidirectional language model (ELMo): LSTM states, one word per step.

Words are encoded by their characters: prompt words as the user wrote them, generated words as the vocabulary spells
them.
"""

# B batch, T words, L characters of a word, N layers, D hidden size of one direction, H cell size

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.blocks.embeddings.char_cnn import CharCNN
from meristem.blocks.incremental.state_concat import concat_states
from meristem.blocks.recurrent.projected_lstm import ProjectedLSTM
from meristem.interfaces.backbone import State

CharIdsFunction = Callable[[NDArray[Any]], NDArray[Any]]
"""Token ids [...] → character ids [..., L]."""
FORWARD = 0
"""Index of the left-to-right direction."""


class LSTMIncrementalDecoder:
    """Incremental decoder of forward LSTM layers; the length is unlimited and no token is processed twice."""

    max_length: int | None = None

    def __init__(
        self, char_cnn: CharCNN, layers: Sequence[ProjectedLSTM], char_ids_of: CharIdsFunction, *, residual: bool
    ) -> None:
        self._char_cnn, self._layers, self._char_ids_of, self._residual = char_cnn, list(layers), char_ids_of, residual

    def init_state(self, batch_size: int, capacity: int, **inputs: Tensor) -> State:
        """Zero states [B, N, D + H]; the input `characters` [B, T, L] are the prompts' character ids, if known."""
        weight, first_layer = self._layers[0].read, self._layers[0]
        state = weight.new_zeros(batch_size, len(self._layers), first_layer.hidden_size + first_layer.cell_size)
        return {"state": state, **inputs}

    def grow_state(self, state: State, capacity: int) -> State:
        """The same state: a recurrent state has a fixed size."""
        return state

    def concat_states(self, first: State, second: State) -> State:
        """The rows of both states."""
        return concat_states(first, second)

    def prefill(self, tokens_BT: Tensor, lengths_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Process prompts padded on the right → forward hidden states [B, D] of each row's last word."""
        char_ids_BTL = self._char_ids(tokens_BT)
        if (prompt_chars := state.get("characters")) is not None:
            prompt_length = prompt_chars.shape[1]  # tokens may go on beyond the prompt when it is prefilled again
            chars_present = state.get("characters_present")
            prompt_ids = (
                prompt_chars
                if chars_present is None
                else torch.where(chars_present[..., None], prompt_chars, char_ids_BTL[:, :prompt_length])
            )
            char_ids_BTL = torch.cat([prompt_ids.to(char_ids_BTL.dtype), char_ids_BTL[:, prompt_length:]], 1)
        return self._run_layers(char_ids_BTL, state["state"], lengths_B - 1)

    def decode_step(self, tokens_B: Tensor, state: State, shared_length: int | None) -> tuple[Tensor, State]:
        """Process one word per row."""
        return self._run_layers(self._char_ids(tokens_B[:, None]), state["state"], torch.zeros_like(tokens_B))

    def _char_ids(self, tokens_BT: Tensor) -> Tensor:
        return torch.from_numpy(self._char_ids_of(tokens_BT.cpu().numpy())).to(tokens_BT.device)

    def _run_layers(self, char_ids_BTL: Tensor, state_BNS: Tensor, last_B: Tensor) -> tuple[Tensor, State]:
        """Last layer's hidden states [B, D] at each row's last word, and the new state."""
        x_TBD = self._char_cnn(char_ids_BTL).transpose(0, 1)
        rows, layer_states = torch.arange(len(last_B), device=last_B.device), []
        for layer_index, layer in enumerate(self._layers):
            previous = state_BNS[:, layer_index]
            initial_state = (previous[None, :, : layer.hidden_size], previous[None, :, layer.hidden_size :])
            outputs, cells = layer(x_TBD[None], initial_state, only=FORWARD)
            layer_states.append(torch.cat([outputs[0][last_B, rows], cells[0][last_B, rows]], -1))
            x_TBD = outputs[0] + x_TBD if self._residual and layer_index else outputs[0]
        return x_TBD[last_B, rows], {"state": torch.stack(layer_states, 1)}
