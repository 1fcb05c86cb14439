"""Materialized attention against scaled_dot_product_attention: outputs and gradients, masks, dropout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.attention.materialized_attention import causal_mask, is_faster, materialized_attention


def heads(seed: int, *, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Queries [2, 3, 5, 4], keys and values [2, 3, 7, 4]."""
    rng = torch.Generator().manual_seed(seed)
    shapes = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)]
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def padding_mask() -> Tensor:
    mask = torch.zeros(2, 1, 1, 7, dtype=torch.float64)
    mask[1, ..., 5:] = -torch.inf
    return mask


@pytest.mark.parametrize("mask", [None, padding_mask()], ids=["no mask", "padding"])
@pytest.mark.parametrize("scale", [0.5, 1.3])
def test_outputs_and_gradients_are_those_of_torch(mask: Tensor | None, scale: float) -> None:
    inputs, reference_inputs = heads(1), heads(1)
    weights = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    attended = materialized_attention(*inputs, mask, scale, 0.0)
    reference = F.scaled_dot_product_attention(*reference_inputs, attn_mask=mask, scale=scale)
    torch.testing.assert_close(attended, reference)
    (attended * weights).sum().backward()
    (reference * weights).sum().backward()
    for tensor, expected in zip(inputs, reference_inputs, strict=True):
        torch.testing.assert_close(tensor.grad, expected.grad)


def test_a_causal_mask_hides_later_keys() -> None:
    q, k, v = (tensor[:, :, :5] for tensor in heads(3))
    attended = materialized_attention(q, k, v, causal_mask(q), 0.5, 0.0)
    torch.testing.assert_close(attended, F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5))


def test_a_learned_bias_gets_its_gradient() -> None:
    (q, k, v), bias = heads(4), torch.randn(1, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda added: materialized_attention(q, k, v, added, 0.5, 0.0), bias)


def test_dropout_drops_weights_and_its_gradient_is_exact() -> None:
    q, k, v = heads(5)

    def attend(queries: Tensor) -> Tensor:
        torch.manual_seed(0)
        return materialized_attention(queries, k, v, None, 0.5, 0.4)

    assert torch.autograd.gradcheck(attend, q)
    assert not torch.allclose(attend(q), materialized_attention(q, k, v, None, 0.5, 0.0))


def test_it_is_used_for_bfloat16_on_cpus_only() -> None:
    q, k, _ = heads(6, dtype=torch.bfloat16)
    assert is_faster(q, k)
    assert not is_faster(q.float(), k.float())
    assert not is_faster(q, k[:, :1])  # grouped keys
    assert not is_faster(q, torch.zeros(2, 3, 513, 4, dtype=torch.bfloat16))
    assert not is_faster(q.to("meta"), k.to("meta"))
