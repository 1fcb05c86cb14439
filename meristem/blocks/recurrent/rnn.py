"""LSTM and GRU networks: fused over whole sequences, or step by step with the same weights."""

# B batch, T tokens, E input size, D hidden size, L layers, K state tensors (LSTM 2, GRU 1), Z gates concatenated

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CellName = Literal["lstm", "gru"]
CellState = tuple[Tensor, ...]
"""Recurrent state of one layer: the hidden state [B, D], and for an LSTM the cell [B, D]."""


def lstm_step(gates_BZ: Tensor, cell_state: CellState, weight_ZD: Tensor, bias_Z: Tensor) -> CellState:
    """One LSTM step: the input's contribution to the gates and the old state → new (state, cell)."""
    state_BD, cell_BD = cell_state
    gates = torch.addmm(gates_BZ + bias_Z, state_BD, weight_ZD.t())
    i, f, g, o = gates.chunk(4, 1)
    cell_BD = f.sigmoid() * cell_BD + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell_BD.tanh(), cell_BD


def gru_step(gates_BZ: Tensor, cell_state: CellState, weight_ZD: Tensor, bias_Z: Tensor) -> CellState:
    """One GRU step: the input's contribution to the gates and the old state → new (state,)."""
    (state_BD,) = cell_state
    hidden_size = state_BD.shape[1]
    recurrent_gates = torch.addmm(bias_Z, state_BD, weight_ZD.t())
    r, z = (gates_BZ[:, : 2 * hidden_size] + recurrent_gates[:, : 2 * hidden_size]).sigmoid().chunk(2, 1)
    candidate = torch.addcmul(gates_BZ[:, 2 * hidden_size :], r, recurrent_gates[:, 2 * hidden_size :]).tanh()
    return (torch.lerp(candidate, state_BD, z),)


RNN_CLASSES: dict[CellName, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
STEP_FUNCTIONS: dict[CellName, Callable[[Tensor, CellState, Tensor, Tensor], CellState]] = {
    "lstm": lstm_step,
    "gru": gru_step,
}
STATE_TENSORS: dict[CellName, int] = {"lstm": 2, "gru": 1}


class RecurrentNetwork(nn.Module):
    """A stack of LSTM or GRU layers; its state is one tensor [B, L, K, D]."""

    def __init__(
        self,
        cell: CellName,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        layer_dropout = dropout if num_layers > 1 else 0.0
        self.net = RNN_CLASSES[cell](
            input_size, hidden_size, num_layers, batch_first=True, bidirectional=bidirectional, dropout=layer_dropout
        )
        self.hidden_size, self.num_layers, self.dropout = hidden_size, num_layers, layer_dropout
        self.num_state_tensors = STATE_TENSORS[cell]
        self.cell, self._step_function = cell, STEP_FUNCTIONS[cell]

    def forward(
        self, x_BTE: Tensor, present_BT: Tensor | None = None, state_BLKD: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """States [B, T, D] (directions concatenated) and the final state of each row at its own last token."""
        if x_BTE.is_meta:
            return self._forward_meta(x_BTE)
        start = None if state_BLKD is None else self._to_torch_state(state_BLKD)
        if present_BT is None:
            out, end = self.net(x_BTE, start)
            return out, self._from_torch_state(end)
        lengths = present_BT.sum(1).clamp_(min=1).cpu()
        packed = pack_padded_sequence(x_BTE, lengths, batch_first=True, enforce_sorted=False)
        out, end = self.net(packed, start)
        return pad_packed_sequence(out, batch_first=True, total_length=x_BTE.shape[1])[0], self._from_torch_state(end)

    @torch.no_grad()
    def layer_outputs(self, x_BTE: Tensor, present_BT: Tensor | None = None) -> list[Tensor]:
        """States [B, T, D] of every layer, without gradient: the fused network returns only the last layer's."""
        out = []
        for layers in range(1, self.num_layers + 1):
            truncated = RecurrentNetwork(
                self.cell, x_BTE.shape[-1], self.hidden_size, layers, bidirectional=self.net.bidirectional
            )
            weights = self.net.state_dict()
            truncated.net.load_state_dict({name: weights[name] for name in truncated.net.state_dict()})
            out.append(truncated.to(x_BTE)(x_BTE, present_BT)[0])
        return out

    def _to_torch_state(self, state_BLKD: Tensor) -> Tensor | tuple[Tensor, ...]:
        """State in torch's layout: layers first, a pair for LSTMs."""
        tensors = tuple(tensor.transpose(0, 1).contiguous() for tensor in state_BLKD.unbind(2))
        return tensors if self.num_state_tensors > 1 else tensors[0]

    def _from_torch_state(self, torch_state: Tensor | tuple[Tensor, ...]) -> Tensor:
        tensors = torch_state if isinstance(torch_state, tuple) else (torch_state,)
        batch_size = tensors[0].shape[1]
        return torch.stack([tensor.transpose(0, 1).reshape(batch_size, self.num_layers, -1) for tensor in tensors], 2)

    def _forward_meta(self, x_BTE: Tensor) -> tuple[Tensor, Tensor]:
        """Forward pass on the meta device, for counting FLOPs: all steps cost the same and are computed at once."""
        batch_size, num_tokens, _ = x_BTE.shape
        x, num_directions = x_BTE.flatten(0, 1), len(self.net.all_weights) // self.num_layers
        for layer in range(self.num_layers):
            outputs = []
            for weight, recurrent_weight, bias, recurrent_bias in self.net.all_weights[
                layer * num_directions : (layer + 1) * num_directions
            ]:
                gates = F.linear(x, weight, bias)
                outputs.append(
                    self._step_function(
                        gates,
                        (gates[:, : self.hidden_size],) * self.num_state_tensors,
                        recurrent_weight,
                        recurrent_bias,
                    )[0]
                )
            x = torch.cat(outputs, 1)
        out_BTD = x.view(batch_size, num_tokens, -1)
        return out_BTD, out_BTD[:, -1, None, None].expand(-1, self.num_layers, self.num_state_tensors, -1)

    # ------------------------------------------------------------ step by step, one direction

    def input_gates(self, x_BTE: Tensor) -> Tensor:
        """Contribution of the first E input columns to the first layer's gates [B, T, Z], for all steps at once."""
        weight, _, bias, _ = self.net.all_weights[0]
        return F.linear(x_BTE, weight[:, : x_BTE.shape[-1]], bias)

    def step(self, gates_BZ: Tensor, extra_input_BM: Tensor | None, state: Sequence[CellState]) -> list[CellState]:
        """One step of every layer; `extra_input` [B, M] are the last input columns, known only at this step."""
        if extra_input_BM is not None:
            gates_BZ = torch.addmm(
                gates_BZ, extra_input_BM, self.net.all_weights[0][0][:, -extra_input_BM.shape[1] :].t()
            )
        new_states: list[CellState] = []
        for layer_index, (cell_state, (weight, recurrent_weight, bias, recurrent_bias)) in enumerate(
            zip(state, self.net.all_weights, strict=True)
        ):
            if layer_index:
                below = F.dropout(new_states[-1][0], self.dropout, self.training)
                gates_BZ = F.linear(below, weight, bias)
            new_states.append(self._step_function(gates_BZ, cell_state, recurrent_weight, recurrent_bias))
        return new_states

    @staticmethod
    def unpack_state(state_BLKD: Tensor) -> list[CellState]:
        """State tensor [B, L, K, D] → one CellState per layer."""
        return [layer.unbind(1) for layer in state_BLKD.unbind(1)]

    @staticmethod
    def pack_state(state: Sequence[CellState]) -> Tensor:
        """One CellState per layer → state tensor [B, L, K, D]."""
        return torch.stack([torch.stack(cell_state, 1) for cell_state in state], 1)
