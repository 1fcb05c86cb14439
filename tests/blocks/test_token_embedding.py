from __future__ import annotations

import torch
from torch import nn

from meristem.blocks.embeddings.token_embedding import TokenEmbedding


def test_the_embedding_is_a_sum() -> None:
    embed = TokenEmbedding(11, 8, 6, position_encoding="learned", num_segments=2, norm=nn.LayerNorm(8))
    tokens, segments = torch.tensor([[3, 4, 5]]), torch.tensor([[0, 1, 1]])
    assert embed.segments is not None
    assert isinstance(embed.positions, nn.Embedding)
    plain = embed.tokens.weight[tokens] + embed.positions.weight[:3] + embed.segments.weight[segments]
    torch.testing.assert_close(embed(tokens, segments), nn.functional.layer_norm(plain, (8,)))


def test_a_row_without_segments_is_all_first_segment() -> None:
    embed = TokenEmbedding(11, 8, 6, position_encoding="none", num_segments=2)
    tokens = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(embed(tokens), embed(tokens, torch.zeros_like(tokens)))


def test_rows_may_start_at_any_position() -> None:
    embed = TokenEmbedding(11, 8, 6, position_encoding="learned")
    tokens = torch.tensor([[3, 3, 3, 3, 3]])
    embedded = embed(tokens)
    torch.testing.assert_close(embed(tokens[:, :2], first=torch.tensor([3])), embedded[:, 3:])


def test_initial_embeddings_have_the_given_std() -> None:
    embed = TokenEmbedding(400, 64, 400, position_encoding="learned", num_segments=2)
    embed.init_weights(0.05)
    assert isinstance(embed.positions, nn.Embedding)
    for table in (embed.tokens, embed.positions):
        assert abs(float(table.weight.detach().std()) - 0.05) < 0.001
