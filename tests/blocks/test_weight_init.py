from __future__ import annotations

import pytest
import torch
from torch import nn

from meristem.blocks.weight_init import check_head_count, init_normal, scale_residual_outputs


def test_linear_layers_start_normal_and_without_bias() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64, bias=False))
    init_normal(module, 0.3)
    for part in (module[0], module[2]):
        assert float(part.weight.detach().std()) == pytest.approx(0.3, rel=0.05)
    assert not module[0].bias.any()
    assert (module[1].weight == 1).all()


@pytest.mark.parametrize(("scaling", "factor"), [("normal", 1.0), ("scaled", 0.5), ("zero", 0.0)])
def test_residual_outputs_are_scaled_by_their_number(scaling: str, factor: float) -> None:
    maps = [nn.Linear(3, 3) for _ in range(4)]
    before = [map.weight.clone() for map in maps]
    scale_residual_outputs(iter(maps), scaling)  # type: ignore[arg-type]  # a parameter of the test
    assert all(torch.equal(map.weight, old * factor) for map, old in zip(maps, before, strict=True))


def test_heads_that_do_not_divide_are_refused_with_ones_that_do() -> None:
    check_head_count(64, 4)
    with pytest.raises(ValueError, match="heads: 5 does not divide a hidden size of 64; 4 does"):
        check_head_count(64, 5)
