"""Tokens, positions and segments made vectors."""

# B batch, T tokens, D width

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.entrance import Entrance
from meristem.blocks.positions import PositionName, added_positions


class Embedding(nn.Module):
    """The sum of what is known of each token before any layer looked at it."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        length: int,
        *,
        positions: PositionName,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = added_positions(positions, length, width)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = norm
        self.dropout = dropout

    def initialise(self, deviation: float) -> None:
        """Normal tables."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=deviation)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, first: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, D]; `first` [B] is where each row's first token stands, 0 unless given."""
        x = self.tokens(tokens)
        if self.positions is not None:
            at = torch.arange(tokens.shape[1], device=tokens.device)
            x = x + self.positions(at if first is None else first[:, None] + at)
        if self.segments is not None:
            alone = segments is None or len(self.segments.weight) == 1  # a single segment is every token's
            x = x + (self.segments.weight[0] if alone else self.segments(segments))
        if self.norm is not None:
            x = self.norm(x)
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class SegmentedEmbedding(nn.Module):
    """Embeddings of an encoder whose word table is shared with a decoder: words, positions, segments."""

    def __init__(self, tokens: nn.Embedding, entrance: Entrance, segments: nn.Embedding | None) -> None:
        super().__init__()
        self.tokens, self.entrance, self.segments = tokens, entrance, segments
        self.width = tokens.embedding_dim

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, D]."""
        return placed(self.tokens(tokens), self.entrance, self.segments, segments)


def placed(words_BTD: Tensor, entrance: Entrance, table: nn.Embedding | None, segments: Tensor | None) -> Tensor:
    """Word vectors with positions and segments added; tokens without a segment belong to the first."""
    if table is None:
        return entrance(words_BTD)  # type: ignore[no-any-return]  # nn.Module.__call__
    alone = segments is None or len(table.weight) == 1  # a single segment is every token's
    return entrance(words_BTD, table.weight[0] if alone else table(segments))  # type: ignore[no-any-return]  # as above


def projection(here: int, there: int, deviation: float) -> nn.Module:
    """From the embeddings' width to the model's, where the two differ (ELECTRA, ALBERT)."""
    if here == there:
        return nn.Identity()
    linear = nn.Linear(here, there)
    nn.init.normal_(linear.weight, std=deviation)
    nn.init.zeros_(linear.bias)
    return linear
