"""Incremental decoding with the forward half of a bidirectional language model (ELMo): LSTM states, one word per step.

Words are read by their letters: those of a prompt as they were written, those of generated words as the vocabulary
spells them.
"""

# B rows, T words, L letters of a word, N layers, D width of one direction, H cells

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.batch import State
from meristem.blocks.characters import Characters
from meristem.blocks.joining import joined
from meristem.blocks.projected_lstm import ProjectedLSTM

Spell = Callable[[NDArray[Any]], NDArray[Any]]
"""Token ids [...] → their letters [..., L]."""
FORWARD = 0
"""The direction that reads from left to right."""


class ForwardSteps:
    """The writer of forward LSTM layers; a text may grow for ever, and nothing is read twice."""

    length: int | None = None

    def __init__(
        self, characters: Characters, layers: Sequence[ProjectedLSTM], spell: Spell, *, residual: bool
    ) -> None:
        self._characters, self._layers, self._spell, self._residual = characters, list(layers), spell, residual

    def begin(self, rows: int, slots: int, **inputs: Tensor) -> State:
        """Zero states [B, N, D + H]; `characters` [B, T, L] are the letters of prompts, where they are known."""
        like, first = self._layers[0].read, self._layers[0]
        state = like.new_zeros(rows, len(self._layers), first.width + first.cells)
        return {"state": state, **inputs}

    def grow(self, state: State, slots: int) -> State:
        """A recurrent state has one size."""
        return state

    def join(self, one: State, other: State) -> State:
        """Rows under rows."""
        return joined(one, other)

    def read(self, tokens_BT: Tensor, sizes_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Prompts padded on the right → the forward states [B, D] after each row's last word."""
        letters_BTL = self._letters(tokens_BT)
        if (given := state.get("characters")) is not None:
            known = given.shape[1]  # a text that is read again has grown beyond its prompt
            told = state.get("characters_present")
            here = given if told is None else torch.where(told[..., None], given, letters_BTL[:, :known])
            letters_BTL = torch.cat([here.to(letters_BTL.dtype), letters_BTL[:, known:]], 1)
        return self._through(letters_BTL, state["state"], sizes_B - 1)

    def step(self, tokens_B: Tensor, state: State, uniform: int | None) -> tuple[Tensor, State]:
        """One word more per row."""
        return self._through(self._letters(tokens_B[:, None]), state["state"], torch.zeros_like(tokens_B))

    def _letters(self, tokens_BT: Tensor) -> Tensor:
        return torch.from_numpy(self._spell(tokens_BT.cpu().numpy())).to(tokens_BT.device)

    def _through(self, letters_BTL: Tensor, state_BNS: Tensor, last_B: Tensor) -> tuple[Tensor, State]:
        """All layers → the last layer's states [B, D] at each row's last word, and what the layers keep."""
        x_TBD = self._characters(letters_BTL).transpose(0, 1)
        rows, kept = torch.arange(len(last_B), device=last_B.device), []
        for number, layer in enumerate(self._layers):
            before = state_BNS[:, number]
            begun = (before[None, :, : layer.width], before[None, :, layer.width :])
            said, cells = layer(x_TBD[None], begun, only=FORWARD)
            kept.append(torch.cat([said[0][last_B, rows], cells[0][last_B, rows]], -1))
            x_TBD = said[0] + x_TBD if self._residual and number else said[0]
        return x_TBD[last_B, rows], {"state": torch.stack(kept, 1)}
