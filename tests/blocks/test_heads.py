from __future__ import annotations

import torch
import torch.nn.functional as F

from meristem.blocks.heads import PooledHead, Transform, no_such_head


def test_a_transform_is_dense_activation_norm() -> None:
    head, x = Transform(8, "gelu", "layer", 1e-12, 0.5), torch.randn(3, 8)
    expected = F.layer_norm(F.gelu(x @ head.dense.weight.t() + head.dense.bias), (8,), eps=1e-12)
    torch.testing.assert_close(head(x), expected)


def test_a_gated_activation_has_no_place_in_a_transform() -> None:
    assert Transform(8, "swiglu", "rms", 1e-6, 0.5)(torch.randn(3, 8)).shape == (3, 8)


def test_a_pooled_head_is_a_tanh_between_two_dense_layers() -> None:
    head, x = PooledHead(8, 3, 0.5), torch.randn(4, 8)
    expected = torch.tanh(x @ head.dense.weight.t()) @ head.score.weight.t()
    torch.testing.assert_close(head(x), expected)


def test_an_unknown_head_names_the_known_ones() -> None:
    said = str(no_such_head("bert", "spans", ("vocabulary", "pooled")))
    assert said == "the bert family makes no head 'spans'; it makes vocabulary, pooled"
