"""Recurrent decoders by what they see of a source: its last state, or what they look at, in two places (SPEC A2)."""

# B batch, T tokens, S source positions, E input width, D width, A width of annotations, L layers, Z gates

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from meristem.blocks.recurrent import CellName, Kept, Recurrent
from meristem.blocks.scores import Annotated, Look


class Said(NamedTuple):
    """What a decoder says, and where it looked."""

    states: Tensor
    """[B, T, D] where words are predicted."""
    weights: Tensor | None
    """[B, T, S] the alignment."""


class Step(NamedTuple):
    """The same of one step, and what the layers keep."""

    state: Tensor
    weights: Tensor | None
    kept: list[Kept]


class Decoder(nn.Module):
    """It sees nothing of the source but the state it begins with."""

    def __init__(
        self, cell: CellName, inputs: int, width: int, layers: int, *, fed: int = 0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.net = Recurrent(cell, inputs + fed, width, layers, dropout=dropout)

    def forward(self, x_BTE: Tensor, begun_BLKD: Tensor, source: Annotated) -> Said:
        """All tokens of a row at once."""
        return Said(self.net(x_BTE, None, begun_BLKD)[0], None)

    def step(self, gates_BZ: Tensor, kept: Sequence[Kept], said_BD: Tensor, source: Annotated) -> Step:
        """One token, given as its share of the first gates; `said` is what the step before said."""
        after = self.net.step(gates_BZ, None, kept)
        return Step(after[-1][0], None, after)

    def _walk(self, x_BTE: Tensor, begun_BLKD: Tensor, source: Annotated) -> Said:
        """Step by step, because a step hangs on what the one before it saw."""
        if x_BTE.is_meta:
            return self._counted(x_BTE, begun_BLKD, source)
        kept: list[Kept] = self.net.apart(begun_BLKD)
        said = torch.zeros_like(kept[-1][0])
        states, weights = [], []
        for gates_BZ in self.net.gates(x_BTE).unbind(1):
            said, seen, kept = self.step(gates_BZ, kept, said, source)
            states.append(said)
            weights.append(seen)
        return Said(torch.stack(states, 1), torch.stack([one for one in weights if one is not None], 1))

    def _counted(self, x_BTE: Tensor, begun_BLKD: Tensor, source: Annotated) -> Said:
        """Shapes alone, for counting operations: every step costs the same, so all are taken at once."""
        rows, time, _ = x_BTE.shape
        kept = self.net.apart(begun_BLKD.repeat_interleave(time, 0))
        values, keys = (part.repeat_interleave(time, 0) for part in (source.values, source.keys))
        every = Annotated(values=values, keys=keys, present=None)
        step = self.step(self.net.gates(x_BTE).flatten(0, 1), kept, kept[-1][0], every)
        return Said(step.state.view(rows, time, -1), None)


class Luong(Decoder):
    """The new state looks, and what it saw joins it: ŝ = tanh(W[c; s]); with feeding the next step reads ŝ too."""

    def __init__(
        self,
        cell: CellName,
        inputs: int,
        width: int,
        layers: int,
        *,
        look: Look,
        annotation: int,
        feeding: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(cell, inputs, width, layers, fed=width if feeding else 0, dropout=dropout)
        self.look, self.feeding = look, feeding
        self.join = nn.Linear(annotation + width, width, bias=False)

    def forward(self, x_BTE: Tensor, begun_BLKD: Tensor, source: Annotated) -> Said:
        """All states in one call where none hangs on what was said, then all looks in one."""
        if self.feeding:
            return self._walk(x_BTE, begun_BLKD, source)
        return self._joined(self.net(x_BTE, None, begun_BLKD)[0], source)

    def step(self, gates_BZ: Tensor, kept: Sequence[Kept], said_BD: Tensor, source: Annotated) -> Step:
        """One token."""
        after = self.net.step(gates_BZ, said_BD if self.feeding else None, kept)
        said, weights = self._joined(after[-1][0][:, None], source)
        return Step(said[:, 0], None if weights is None else weights[:, 0], after)

    def _joined(self, states_BTD: Tensor, source: Annotated) -> Said:
        contexts_BTA, weights_BTS = self.look(states_BTD, source)
        return Said(self.join(torch.cat([contexts_BTA, states_BTD], -1)).tanh(), weights_BTS)


class Bahdanau(Decoder):
    """The last state looks, and what it saw enters the cell beside the token."""

    def __init__(
        self,
        cell: CellName,
        inputs: int,
        width: int,
        layers: int,
        *,
        look: Look,
        annotation: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(cell, inputs, width, layers, fed=annotation, dropout=dropout)
        self.look = look

    def forward(self, x_BTE: Tensor, begun_BLKD: Tensor, source: Annotated) -> Said:
        """Step by step: where a step looks hangs on the one before it."""
        return self._walk(x_BTE, begun_BLKD, source)

    def step(self, gates_BZ: Tensor, kept: Sequence[Kept], said_BD: Tensor, source: Annotated) -> Step:
        """One token."""
        context_B1A, weights_B1S = self.look(kept[-1][0][:, None], source)
        after = self.net.step(gates_BZ, context_B1A[:, 0], kept)
        return Step(after[-1][0], weights_B1S[:, 0], after)
