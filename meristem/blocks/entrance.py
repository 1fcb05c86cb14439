"""Where vectors enter a stack: scaled, told where they stand, normalised."""

# B batch, T tokens, D width

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.positions import PositionName, added_positions


class Entrance(nn.Module):
    """What an encoder and a decoder that share one table of words each do with its vectors."""

    def __init__(
        self,
        width: int,
        length: int,
        *,
        positions: PositionName,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.positions = added_positions(positions, length, width)
        self.scale, self.norm, self.dropout = scale, norm, dropout

    def initialise(self, deviation: float) -> None:
        """Normal positions, where they are learned."""
        if isinstance(self.positions, nn.Embedding):
            nn.init.normal_(self.positions.weight, std=deviation)

    def forward(self, x_BTD: Tensor, added: Tensor | None = None) -> Tensor:
        """[B, T, D] → [B, T, D], the first of T at position 0; `added` [..., D] (segments) joins the positions."""
        x = self.place(x_BTD, torch.arange(x_BTD.shape[1], device=x_BTD.device), added)
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def place(self, x: Tensor, at: Tensor, added: Tensor | None = None) -> Tensor:
        """Vectors [..., D] at positions [...], before dropout."""
        if self.positions is not None:
            x = torch.add(self.positions(at), x, alpha=self.scale)
        elif self.scale != 1.0:
            x = x * self.scale
        x = x if added is None else x + added
        return x if self.norm is None else self.norm(x)
