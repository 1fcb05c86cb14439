"""Token embeddings: the sum of token, position and segment embeddings."""

# B batch, T tokens, D hidden size

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.attention.position_encoding import PositionName, build_position_embedding
from meristem.blocks.embeddings.input_embedding import InputEmbedding
from meristem.blocks.precision import to_compute_dtype


class TokenEmbedding(nn.Module):
    """Token + position + segment embedding, then norm and dropout."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        max_length: int,
        *,
        position_encoding: PositionName,
        num_segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding_size = hidden_size
        self.tokens = nn.Embedding(vocab_size, hidden_size)
        self.positions = build_position_embedding(position_encoding, max_length, hidden_size)
        self.segments = nn.Embedding(num_segments, hidden_size) if num_segments else None
        self.norm = norm
        self.dropout = dropout

    def init_weights(self, init_std: float) -> None:
        """Initialize all embeddings from a normal distribution."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=init_std)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, first: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, D]; `first` [B] is the position of each row's first token, 0 by default."""
        x = self.tokens(tokens)
        if self.positions is not None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
            x = x + self.positions(positions if first is None else first[:, None] + positions)
        if self.segments is not None:
            single_segment = segments is None or len(self.segments.weight) == 1  # one segment holds all tokens
            x = x + (self.segments.weight[0] if single_segment else self.segments(segments))
        x = to_compute_dtype(x if self.norm is None else self.norm(x))
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class SharedTokenEmbedding(nn.Module):
    """Embedding of an encoder that shares its token embedding with a decoder: tokens, positions, segments."""

    def __init__(self, tokens: nn.Embedding, input_embedding: InputEmbedding, segments: nn.Embedding | None) -> None:
        super().__init__()
        self.tokens, self.entrance, self.segments = tokens, input_embedding, segments
        self.embedding_size = tokens.embedding_dim

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, D]."""
        return embed_inputs(self.tokens(tokens), self.entrance, self.segments, segments)


def embed_inputs(
    words_BTD: Tensor, input_embedding: InputEmbedding, segment_embedding: nn.Embedding | None, segments: Tensor | None
) -> Tensor:
    """Token vectors [B, T, D] with positions and segments added; the default segment is 0."""
    if segment_embedding is None:
        return input_embedding(words_BTD)  # type: ignore[no-any-return]  # nn.Module.__call__
    single_segment = segments is None or len(segment_embedding.weight) == 1  # one segment holds all tokens
    return input_embedding(words_BTD, segment_embedding.weight[0] if single_segment else segment_embedding(segments))  # type: ignore[no-any-return]  # as above


def embedding_projection(in_size: int, out_size: int, init_std: float) -> nn.Module:
    """Projection from embedding size to hidden size (ELECTRA, ALBERT); the identity if they are equal."""
    if in_size == out_size:
        return nn.Identity()
    linear = nn.Linear(in_size, out_size)
    nn.init.normal_(linear.weight, std=init_std)
    nn.init.zeros_(linear.bias)
    return linear
