"""RNN decoders: plain (Sutskever et al. 2014), Luong attention (2015), Bahdanau attention (2014)."""

# B batch, T tokens, S source positions, E input size, D hidden size, A annotation size, L layers, Z gates

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from meristem.blocks.recurrent.rnn import CellName, CellState, RecurrentNetwork
from meristem.blocks.recurrent.rnn_attention import EncodedSource, SourceAttention


class DecoderOutput(NamedTuple):
    """Output of a decoder over a whole sequence."""

    states: Tensor
    """[B, T, D] input of the vocabulary head."""
    attention_weights: Tensor | None
    """[B, T, S] attention weights (the alignment)."""


class RNNDecoderStep(NamedTuple):
    """Output of one decoding step: state [B, D], attention weights [B, S], and the new recurrent states."""

    state: Tensor
    attention_weights: Tensor | None
    cell_states: list[CellState]


class RNNDecoder(nn.Module):
    """Decoder without attention: the source only sets its initial state (Sutskever et al. 2014)."""

    def __init__(
        self,
        cell: CellName,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        extra_inputs: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.net = RecurrentNetwork(cell, input_size + extra_inputs, hidden_size, num_layers, dropout=dropout)

    def forward(self, x_BTE: Tensor, initial_BLKD: Tensor, source: EncodedSource) -> DecoderOutput:
        """Teacher forcing: all tokens of a row in one fused call."""
        return DecoderOutput(self.net(x_BTE, None, initial_BLKD)[0], None)

    def step(
        self, gates_BZ: Tensor, cell_states: Sequence[CellState], previous_BD: Tensor, source: EncodedSource
    ) -> RNNDecoderStep:
        """One token, given as its contribution to the first layer's gates; `previous` is the last step's output."""
        new_states = self.net.step(gates_BZ, None, cell_states)
        return RNNDecoderStep(new_states[-1][0], None, new_states)

    def _run_steps(self, x_BTE: Tensor, initial_BLKD: Tensor, source: EncodedSource) -> DecoderOutput:
        """Teacher forcing step by step, where a step depends on the attention of the one before it."""
        if x_BTE.is_meta:
            return self._forward_meta(x_BTE, initial_BLKD, source)
        cell_states: list[CellState] = self.net.unpack_state(initial_BLKD)
        output = torch.zeros_like(cell_states[-1][0])
        states, weights = [], []
        for gates_BZ in self.net.input_gates(x_BTE).unbind(1):
            output, step_weights, cell_states = self.step(gates_BZ, cell_states, output, source)
            states.append(output)
            weights.append(step_weights)
        return DecoderOutput(
            torch.stack(states, 1),
            torch.stack([step_weights_BS for step_weights_BS in weights if step_weights_BS is not None], 1),
        )

    def _forward_meta(self, x_BTE: Tensor, initial_BLKD: Tensor, source: EncodedSource) -> DecoderOutput:
        """Forward pass on the meta device, for counting FLOPs: all steps cost the same and are computed at once."""
        batch_size, num_tokens, _ = x_BTE.shape
        cell_states = self.net.unpack_state(initial_BLKD.repeat_interleave(num_tokens, 0))
        values, keys = (tensor.repeat_interleave(num_tokens, 0) for tensor in (source.values, source.keys))
        repeated_source = EncodedSource(values=values, keys=keys, present=None)
        step = self.step(self.net.input_gates(x_BTE).flatten(0, 1), cell_states, cell_states[-1][0], repeated_source)
        return DecoderOutput(step.state.view(batch_size, num_tokens, -1), None)


class LuongDecoder(RNNDecoder):
    """Luong attention: the new state attends, ŝ = tanh(W[c; s]); with input feeding, ŝ is an input of the next step."""

    def __init__(
        self,
        cell: CellName,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        source_attention: SourceAttention,
        annotation: int,
        input_feeding: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            cell, input_size, hidden_size, num_layers, extra_inputs=hidden_size if input_feeding else 0, dropout=dropout
        )
        self.look, self.input_feeding = source_attention, input_feeding
        self.join = nn.Linear(annotation + hidden_size, hidden_size, bias=False)

    def forward(self, x_BTE: Tensor, initial_BLKD: Tensor, source: EncodedSource) -> DecoderOutput:
        """Teacher forcing; without input feeding, all states in one fused call and then all attention in one."""
        if self.input_feeding:
            return self._run_steps(x_BTE, initial_BLKD, source)
        return self._attend(self.net(x_BTE, None, initial_BLKD)[0], source)

    def step(
        self, gates_BZ: Tensor, cell_states: Sequence[CellState], previous_BD: Tensor, source: EncodedSource
    ) -> RNNDecoderStep:
        """One decoding step."""
        new_states = self.net.step(gates_BZ, previous_BD if self.input_feeding else None, cell_states)
        output, weights = self._attend(new_states[-1][0][:, None], source)
        return RNNDecoderStep(output[:, 0], None if weights is None else weights[:, 0], new_states)

    def _attend(self, states_BTD: Tensor, source: EncodedSource) -> DecoderOutput:
        contexts_BTA, weights_BTS = self.look(states_BTD, source)
        return DecoderOutput(self.join(torch.cat([contexts_BTA, states_BTD], -1)).tanh(), weights_BTS)


class BahdanauDecoder(RNNDecoder):
    """Bahdanau attention: the previous state attends, and the context vector is an input of the cell."""

    def __init__(
        self,
        cell: CellName,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        source_attention: SourceAttention,
        annotation: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(cell, input_size, hidden_size, num_layers, extra_inputs=annotation, dropout=dropout)
        self.look = source_attention

    def forward(self, x_BTE: Tensor, initial_BLKD: Tensor, source: EncodedSource) -> DecoderOutput:
        """Teacher forcing step by step: the attention of a step depends on the state of the one before it."""
        return self._run_steps(x_BTE, initial_BLKD, source)

    def step(
        self, gates_BZ: Tensor, cell_states: Sequence[CellState], previous_BD: Tensor, source: EncodedSource
    ) -> RNNDecoderStep:
        """One decoding step."""
        context_B1A, weights_B1S = self.look(cell_states[-1][0][:, None], source)
        new_states = self.net.step(gates_BZ, context_B1A[:, 0], cell_states)
        return RNNDecoderStep(new_states[-1][0], weights_B1S[:, 0], new_states)
