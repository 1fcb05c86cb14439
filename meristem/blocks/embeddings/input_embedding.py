"""Input layer of an encoder or decoder with a shared token embedding: scaling, positions, norm, dropout."""

# B batch, T tokens, D hidden size

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.attention.position_encoding import PositionName, build_position_embedding
from meristem.blocks.precision import to_compute_dtype


class InputEmbedding(nn.Module):
    """Scales token vectors and adds positions; encoder and decoder each have one on top of a shared embedding."""

    def __init__(
        self,
        hidden_size: int,
        max_length: int,
        *,
        position_encoding: PositionName,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.positions = build_position_embedding(position_encoding, max_length, hidden_size)
        self.scale, self.norm, self.dropout = scale, norm, dropout

    def init_weights(self, init_std: float) -> None:
        """Initialize learned position embeddings from a normal distribution."""
        if isinstance(self.positions, nn.Embedding):
            nn.init.normal_(self.positions.weight, std=init_std)

    def forward(self, x_BTD: Tensor, added: Tensor | None = None) -> Tensor:
        """[B, T, D] → [B, T, D] for positions 0 … T − 1; `added` [..., D] (segment embeddings) is added."""
        x = self.add_positions(x_BTD, torch.arange(x_BTD.shape[1], device=x_BTD.device), added)
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def add_positions(self, x: Tensor, positions: Tensor, added: Tensor | None = None) -> Tensor:
        """Input vectors [..., D] at positions [...], before dropout."""
        if self.positions is not None:
            x = torch.add(self.positions(positions), x, alpha=self.scale)
        elif self.scale != 1.0:
            x = x * self.scale
        x = x if added is None else x + added
        return to_compute_dtype(x if self.norm is None else self.norm(x))
