from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from meristem.blocks.entrance import Entrance


def test_scaled_then_placed_then_normalised() -> None:
    x = torch.randn(2, 5, 8)
    learned = Entrance(8, 9, positions="learned", scale=3.0, norm=nn.LayerNorm(8))
    expected = F.layer_norm(x * 3 + learned.positions.weight[:5], (8,))  # type: ignore[union-attr]
    torch.testing.assert_close(learned(x), expected)
    torch.testing.assert_close(learned.place(x[:, 3], torch.tensor([3, 3])), expected[:, 3])
    torch.testing.assert_close(Entrance(8, 9, positions="none", scale=3.0)(x), x * 3)
    assert Entrance(8, 9, positions="rotary")(x) is x


def test_only_learned_positions_are_drawn() -> None:
    torch.manual_seed(0)
    learned, fixed = (Entrance(64, 100, positions=kind) for kind in ("learned", "sinusoidal"))
    before = fixed.positions.table.clone()  # type: ignore[union-attr]
    learned.initialise(0.5)
    fixed.initialise(0.5)
    assert 0.48 < float(learned.positions.weight.detach().std()) < 0.52  # type: ignore[union-attr]
    assert torch.equal(fixed.positions.table, before)  # type: ignore[union-attr]


def test_dropout_only_in_training() -> None:
    entrance, x = Entrance(8, 9, positions="none", dropout=0.5), torch.ones(1, 9, 8)
    assert torch.equal(entrance.eval()(x), x)
    assert (entrance.train()(x) == 0).any()
