"""Recurrent nets over whole rows in one fused call, or step by step with the same weights."""

# B batch, T tokens, E input width, D state width, L layers, K tensors a cell keeps, Z gates side by side

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CellName = Literal["lstm", "gru"]
Kept = tuple[Tensor, ...]
"""What one layer keeps from step to step: the state [B, D], and an LSTM's cell."""


def lstm_step(gates_BZ: Tensor, kept: Kept, weight_ZD: Tensor, bias_Z: Tensor) -> Kept:
    """The input's share of the gates and what was kept → what is kept now; the state comes first."""
    state_BD, cell_BD = kept
    gates = torch.addmm(gates_BZ + bias_Z, state_BD, weight_ZD.t())
    i, f, g, o = gates.chunk(4, 1)
    cell_BD = f.sigmoid() * cell_BD + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell_BD.tanh(), cell_BD


def gru_step(gates_BZ: Tensor, kept: Kept, weight_ZD: Tensor, bias_Z: Tensor) -> Kept:
    """The same for a GRU, which resets the state's share of its candidate and keeps nothing but the state."""
    (state_BD,) = kept
    width = state_BD.shape[1]
    own = torch.addmm(bias_Z, state_BD, weight_ZD.t())
    r, z = (gates_BZ[:, : 2 * width] + own[:, : 2 * width]).sigmoid().chunk(2, 1)
    candidate = torch.addcmul(gates_BZ[:, 2 * width :], r, own[:, 2 * width :]).tanh()
    return (torch.lerp(candidate, state_BD, z),)


NETS: dict[CellName, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
STEPS: dict[CellName, Callable[[Tensor, Kept, Tensor, Tensor], Kept]] = {"lstm": lstm_step, "gru": gru_step}
KEPT: dict[CellName, int] = {"lstm": 2, "gru": 1}


class Recurrent(nn.Module):
    """Layers of LSTM or GRU cells; their state travels as one tensor [B, L, K, D], rows first."""

    def __init__(
        self, cell: CellName, inputs: int, width: int, layers: int, *, both_ways: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.net = NETS[cell](inputs, width, layers, batch_first=True, bidirectional=both_ways, dropout=between)
        self.width, self.layers, self.kept, self.dropout = width, layers, KEPT[cell], between
        self.cell, self._step = cell, STEPS[cell]

    def forward(
        self, x_BTE: Tensor, present_BT: Tensor | None = None, state_BLKD: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """States at every position, and the state after each row's own last one; both directions side by side."""
        if x_BTE.is_meta:
            return self._counted(x_BTE)
        start = None if state_BLKD is None else self._apart(state_BLKD)
        if present_BT is None:
            out, end = self.net(x_BTE, start)
            return out, self._together(end)
        sizes = present_BT.sum(1).clamp_(min=1).cpu()
        packed = pack_padded_sequence(x_BTE, sizes, batch_first=True, enforce_sorted=False)
        out, end = self.net(packed, start)
        return pad_packed_sequence(out, batch_first=True, total_length=x_BTE.shape[1])[0], self._together(end)

    @torch.no_grad()
    def each_layer(self, x_BTE: Tensor, present_BT: Tensor | None = None) -> list[Tensor]:
        """The states of every layer [B, T, D], for use and not for training: the fused net keeps only the last one."""
        out = []
        for layers in range(1, self.layers + 1):
            shorter = Recurrent(self.cell, x_BTE.shape[-1], self.width, layers, both_ways=self.net.bidirectional)
            own = self.net.state_dict()
            shorter.net.load_state_dict({name: own[name] for name in shorter.net.state_dict()})
            out.append(shorter.to(x_BTE)(x_BTE, present_BT)[0])
        return out

    def _apart(self, state_BLKD: Tensor) -> Tensor | tuple[Tensor, ...]:
        """As torch wants it: layers first, a pair for LSTMs."""
        parts = tuple(part.transpose(0, 1).contiguous() for part in state_BLKD.unbind(2))
        return parts if self.kept > 1 else parts[0]

    def _together(self, end: Tensor | tuple[Tensor, ...]) -> Tensor:
        parts = end if isinstance(end, tuple) else (end,)
        rows = parts[0].shape[1]
        return torch.stack([part.transpose(0, 1).reshape(rows, self.layers, -1) for part in parts], 2)

    def _counted(self, x_BTE: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes alone, for counting operations: every step costs the same, so all are taken at once."""
        rows, time, _ = x_BTE.shape
        x, ways = x_BTE.flatten(0, 1), len(self.net.all_weights) // self.layers
        for layer in range(self.layers):
            said = []
            for weight, own, bias, own_bias in self.net.all_weights[layer * ways : (layer + 1) * ways]:
                gates = F.linear(x, weight, bias)
                said.append(self._step(gates, (gates[:, : self.width],) * self.kept, own, own_bias)[0])
            x = torch.cat(said, 1)
        out_BTD = x.view(rows, time, -1)
        return out_BTD, out_BTD[:, -1, None, None].expand(-1, self.layers, self.kept, -1)

    # ------------------------------------------------------------ step by step, one direction

    def gates(self, x_BTE: Tensor) -> Tensor:
        """What the first E columns of the input say to the first layer's gates [B, T, Z], for all steps at once."""
        weight, _, bias, _ = self.net.all_weights[0]
        return F.linear(x_BTE, weight[:, : x_BTE.shape[-1]], bias)

    def step(self, gates_BZ: Tensor, more_BM: Tensor | None, state: Sequence[Kept]) -> list[Kept]:
        """One step of every layer; `more` are the last columns of the input, known only now."""
        if more_BM is not None:
            gates_BZ = torch.addmm(gates_BZ, more_BM, self.net.all_weights[0][0][:, -more_BM.shape[1] :].t())
        after: list[Kept] = []
        for number, (kept, (weight, own, bias, own_bias)) in enumerate(zip(state, self.net.all_weights, strict=True)):
            if number:
                below = F.dropout(after[-1][0], self.dropout, self.training)
                gates_BZ = F.linear(below, weight, bias)
            after.append(self._step(gates_BZ, kept, own, own_bias))
        return after

    @staticmethod
    def apart(state_BLKD: Tensor) -> list[Kept]:
        """A state as steps take it: per layer what it keeps."""
        return [layer.unbind(1) for layer in state_BLKD.unbind(1)]

    @staticmethod
    def together(state: Sequence[Kept]) -> Tensor:
        """[B, L, K, D] of what the layers keep."""
        return torch.stack([torch.stack(kept, 1) for kept in state], 1)
