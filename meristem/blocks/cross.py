"""Attention from one sequence to another: a decoder looking at what it writes from."""

# B batch, T queries, S places of the source, D width, H heads, G key-value heads, C channels of one head

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem.blocks.attention import Mixing
from meristem.blocks.sight import Sight


class CrossAttention(Mixing):
    """Queries from here, keys and values from a source; those are made once and serve every later query."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__(width, heads, groups=groups, dropout=dropout, scale=scale)
        self.query = nn.Linear(width, width, bias=bias)
        self.source = nn.Linear(width, 2 * self.groups * self.channels, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def pair(self, source_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, G, S, C] of a source."""
        both = self.source(source_BSD).view(*source_BSD.shape[:2], 2 * self.groups, self.channels)
        k, v = torch.split(both, self.groups, dim=2)
        return k.transpose(1, 2), v.transpose(1, 2)

    def forward(self, x_BTD: Tensor, pair: tuple[Tensor, Tensor], sight: Sight) -> Tensor:
        """[B, T, D] → [B, T, D]."""
        q_BHTC = self.query(x_BTD).view(*x_BTD.shape[:2], self.heads, self.channels).transpose(1, 2)
        return self.output(self.mix(q_BHTC, *pair, sight))  # type: ignore[no-any-return]  # nn.Module.__call__
