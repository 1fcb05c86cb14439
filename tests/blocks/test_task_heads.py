from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from meristem.blocks.heads.task_heads import PooledHead, PredictionTransform, TaskNetwork, build_shared_head
from meristem.config.errors import MeristemError


def test_a_transform_is_dense_activation_norm() -> None:
    head, x = PredictionTransform(8, "gelu", "layer", 1e-12, 0.5), torch.randn(3, 8)
    expected = F.layer_norm(F.gelu(x @ head.dense.weight.t() + head.dense.bias), (8,), eps=1e-12)
    torch.testing.assert_close(head(x), expected)


def test_a_transform_replaces_a_gated_activation() -> None:
    assert PredictionTransform(8, "swiglu", "rms", 1e-6, 0.5)(torch.randn(3, 8)).shape == (3, 8)


def test_a_pooled_head_is_a_tanh_between_two_dense_layers() -> None:
    head, x = PooledHead(8, 3, 0.5), torch.randn(4, 8)
    expected = torch.tanh(x @ head.dense.weight.t()) @ head.score.weight.t()
    torch.testing.assert_close(head(x), expected)


@dataclass
class Wide:
    settings: SimpleNamespace
    hidden_size: int = 8


WIDE = Wide(SimpleNamespace(family="bert", layers=2, init_std=0.02))


def test_an_unknown_head_names_the_known_ones() -> None:
    with pytest.raises(MeristemError, match="the bert family has no head 'spans'; it has vocabulary, pooled, tags"):
        build_shared_head(WIDE, "spans", {}, ("vocabulary", "pooled"))


@pytest.mark.parametrize(("sizes", "width"), [({}, 8), ({"width": 6}, 6), ({"times": 3}, 24), ({"beside": 4}, 12)])
def test_a_head_has_the_size_of_its_input(sizes: dict[str, int], width: int) -> None:
    assert build_shared_head(WIDE, "tags", {"classes": 5, **sizes}, ())(torch.randn(2, width)).shape == (2, 5)


def test_a_recurrent_network_ignores_padding() -> None:
    net, x = TaskNetwork(4, 6, recurrent=True), torch.randn(2, 5, 4)
    present = torch.tensor([[True] * 5, [True, True, True, False, False]])
    batched, single = net(x, present), net(x[1:, :3])
    torch.testing.assert_close(batched[1:, :3], single)
    assert (net(x)[1:, :3] - single).abs().max() > 1e-3  # without being told, it does read it
