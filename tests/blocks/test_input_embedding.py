from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from meristem.blocks.embeddings.input_embedding import InputEmbedding


def test_scaling_then_positions_then_norm() -> None:
    x = torch.randn(2, 5, 8)
    input_embedding = InputEmbedding(8, 9, position_encoding="learned", scale=3.0, norm=nn.LayerNorm(8))
    expected = F.layer_norm(x * 3 + input_embedding.positions.weight[:5], (8,))  # type: ignore[union-attr]
    torch.testing.assert_close(input_embedding(x), expected)
    torch.testing.assert_close(input_embedding.add_positions(x[:, 3], torch.tensor([3, 3])), expected[:, 3])
    torch.testing.assert_close(InputEmbedding(8, 9, position_encoding="none", scale=3.0)(x), x * 3)
    assert InputEmbedding(8, 9, position_encoding="rotary")(x) is x


def test_only_learned_positions_are_initialized() -> None:
    torch.manual_seed(0)
    learned_positions, fixed = (InputEmbedding(64, 100, position_encoding=kind) for kind in ("learned", "sinusoidal"))
    before = fixed.positions.table.clone()  # type: ignore[union-attr]
    learned_positions.init_weights(0.5)
    fixed.init_weights(0.5)
    assert 0.48 < float(learned_positions.positions.weight.detach().std()) < 0.52  # type: ignore[union-attr]
    assert torch.equal(fixed.positions.table, before)  # type: ignore[union-attr]


def test_dropout_only_in_training() -> None:
    entrance, x = InputEmbedding(8, 9, position_encoding="none", dropout=0.5), torch.ones(1, 9, 8)
    assert torch.equal(entrance.eval()(x), x)
    assert (entrance.train()(x) == 0).any()
