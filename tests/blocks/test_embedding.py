from __future__ import annotations

import torch
from torch import nn

from meristem.blocks.embedding import Embedding


def test_the_sum_of_what_is_known() -> None:
    embed = Embedding(11, 8, 6, positions="learned", segments=2, norm=nn.LayerNorm(8))
    tokens, segments = torch.tensor([[3, 4, 5]]), torch.tensor([[0, 1, 1]])
    assert embed.segments is not None
    assert isinstance(embed.positions, nn.Embedding)
    plain = embed.tokens.weight[tokens] + embed.positions.weight[:3] + embed.segments.weight[segments]
    torch.testing.assert_close(embed(tokens, segments), nn.functional.layer_norm(plain, (8,)))


def test_a_row_without_segments_is_all_first_segment() -> None:
    embed = Embedding(11, 8, 6, positions="none", segments=2)
    tokens = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(embed(tokens), embed(tokens, torch.zeros_like(tokens)))


def test_rows_may_begin_anywhere() -> None:
    embed = Embedding(11, 8, 6, positions="learned")
    tokens = torch.tensor([[3, 3, 3, 3, 3]])
    whole = embed(tokens)
    torch.testing.assert_close(embed(tokens[:, :2], first=torch.tensor([3])), whole[:, 3:])


def test_initial_tables_are_as_spread_as_asked() -> None:
    embed = Embedding(400, 64, 400, positions="learned", segments=2)
    embed.initialise(0.05)
    assert isinstance(embed.positions, nn.Embedding)
    for table in (embed.tokens, embed.positions):
        assert abs(float(table.weight.detach().std()) - 0.05) < 0.001
