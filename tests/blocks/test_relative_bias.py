from __future__ import annotations

import math

import pytest
import torch

from meristem.blocks.attention.attention_mask import AttentionMask, MaskSpec
from meristem.blocks.attention.relative_bias import RelativeBias


def expected_bucket(query: int, key: int, buckets: int, farthest: int, both_ways: bool) -> int:
    """T5's rule for one pair: half of the buckets exact, the rest by logarithm; keys ahead in an upper half."""
    base, distance = 0, query - key
    if both_ways:
        buckets //= 2
        if distance < 0:
            base, distance = buckets, -distance
    distance = max(distance, 0)
    exact = buckets // 2
    if distance < exact:
        return base + distance
    steps = math.log(distance / exact) / math.log(farthest / exact) * (buckets - exact)
    return base + min(buckets - 1, exact + int(steps + 1e-9))


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20)])
def test_every_pair_has_the_bias_of_its_bucket(buckets: int, farthest: int, both_ways: bool) -> None:
    bias = RelativeBias(3, buckets, farthest, bidirectional=both_ways)
    mask = bias(AttentionMask(), 41, 150)
    assert mask.additive_mask is not None
    assert mask.additive_mask.shape == (1, 3, 41, 150)
    for query in (0, 1, 17, 40):
        for key in (0, 1, 2, 5, 9, 16, 17, 18, 40, 63, 100, 149):
            bucket = expected_bucket(query, key, buckets, farthest, both_ways)
            assert torch.equal(mask.additive_mask[0, :, query, key], bias.table.weight[bucket]), (query, key)


def test_gradients_equal_those_of_a_lookup_per_pair() -> None:
    bias = RelativeBias(2, 8, 20, bidirectional=True).double()
    weight = torch.randn(2, 9, 13, dtype=torch.float64)
    (bias(AttentionMask(), 9, 13).additive_mask * weight).sum().backward()
    distance = torch.arange(13) - torch.arange(9)[:, None]
    table = torch.zeros(8, 2, dtype=torch.float64)
    table.index_add_(0, bias.distance_bucket(distance).flatten(), weight.flatten(1).t())
    torch.testing.assert_close(bias.table.weight.grad, table, atol=1e-12, rtol=0)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_masked_keys_stay_masked(window: int | None, padded: bool) -> None:
    present = torch.arange(6)[None] < torch.tensor([[6], [4]]) if padded else None
    tensor_options = {"dtype": torch.float32, "device": torch.device("cpu")}
    for causal in (True, False):
        mask_spec = MaskSpec(num_queries=6, num_keys=6, causal=causal, present=present, **tensor_options)
        plain = mask_spec.build_mask(window)
        hidden = (
            plain.additive_mask == -torch.inf
            if plain.additive_mask is not None
            else torch.zeros(1, 1, 6, 6, dtype=torch.bool)
        )
        hidden = hidden | (torch.ones(6, 6).triu(1).bool() if plain.is_causal else torch.zeros(6, 6).bool())
        relative_bias = RelativeBias(2, 8, 20, bidirectional=True)(plain, 6, 6)
        assert not relative_bias.is_causal
        assert torch.equal(
            (relative_bias.additive_mask == -torch.inf).any(1, keepdim=True),
            hidden.expand(len(relative_bias.additive_mask), 1, 6, 6),
        )
