from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from meristem.blocks.attention.relative_attention import (
    ContiguousShift,
    IndexedShift,
    RelativeAttention,
    RelativeAttentionBiases,
    RelativeMask,
    sinusoidal_encoding,
)
from meristem.blocks.attention.relative_mask import RelativeMaskSpec
from meristem.blocks.transformer.segment_memory import EMPTY_SLOT, SegmentMemory


def attention(segments: int = 0, dropout: float = 0.0) -> RelativeAttention:
    torch.manual_seed(0)
    relative_attention = RelativeAttention(
        12, 3, RelativeAttentionBiases(3, 4, segments=segments > 0), num_segments=segments, dropout=dropout
    )
    for parameter in relative_attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return relative_attention.double()


def relative_mask_spec(time: int, **facts: object) -> RelativeMaskSpec:
    return RelativeMaskSpec(
        **{"num_tokens": time, "causal": False, "device": torch.device("cpu"), "dtype": torch.float64, **facts}
    )


def by_hand(
    a: RelativeAttention, x: Tensor, context: Tensor, query_positions: list[int], mask: RelativeMask, sign: int = 1
) -> Tensor:
    """The paper's formula, one pair of tokens at a time."""
    rows, keys = context.shape[:2]
    heads = lambda module: module.view(*module.shape[:-1], 3, 4)  # noqa: E731
    q, k = heads(a.query(x)), heads(a.key_value(context)[..., :12])
    v, out = heads(a.key_value(context)[..., 12:]), torch.zeros(rows, len(query_positions), 3, 4, dtype=torch.float64)
    for b in range(rows):
        for i, position in enumerate(query_positions):
            scores = torch.full((keys, 3), -math.inf, dtype=torch.float64)
            for j in range(keys):
                if mask.masked is not None and mask.masked.expand(rows, -1, -1)[b, i, j]:
                    continue
                r = heads(a.relative(sinusoidal_encoding(torch.tensor([sign * (position - j)]), 12, torch.float64)))[0]
                scores[j] = ((q[b, i] + a.biases.content) * k[b, j] + (q[b, i] + a.biases.distance) * r).sum(-1)
                if mask.different_segment is not None:
                    segment_query = q[b, i] + a.biases.segment
                    scores[j] = scores[j] + (segment_query * a.segments[int(mask.different_segment[b, i, j])]).sum(-1)
            out[b, i] = ((scores / 2).softmax(0)[:, :, None] * v[b]).sum(0)
    return a.output(out.flatten(2))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("time", [1, 2, 7])
@pytest.mark.parametrize("slots", [0, 3, 5])
def test_the_papers_formula_pair_by_pair(time: int, slots: int, causal: bool) -> None:
    """Queries in a row behind memory: the shift that reads no distance wrong, values and every gradient."""
    a = attention()
    x = torch.randn(2, time, 12, dtype=torch.float64)
    memory = torch.randn(2, slots, 12, dtype=torch.float64)
    segment_memory = None
    if slots:
        segment_memory = SegmentMemory(states=memory[:, None], documents=torch.zeros(2, slots, dtype=torch.long))
    relative_spec = relative_mask_spec(time, causal=causal, memory=segment_memory)
    mask, results = relative_spec.content_mask(), []
    for method in ("fast", "by hand"):
        a.zero_grad()
        x = x.detach().requires_grad_()
        context = torch.cat([memory, x], 1)
        if method == "fast":
            output, weights = a(
                x,
                a.project_keys_values(context),
                a.project_distances(sinusoidal_encoding(relative_spec.distances, 12, torch.float64)[None]),
                mask,
            )
            assert weights.shape == (3, 2, time, slots + time)
        else:
            output = by_hand(a, x, context, list(range(slots, slots + time)), mask)
        (output * torch.arange(12)).sum().backward()
        results.append([output.detach(), x.grad, *(p.grad for p in a.parameters())])
    for actual, other in zip(*results, strict=True):
        torch.testing.assert_close(actual, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("backwards", [False, True])
def test_queries_anywhere_in_the_text(backwards: bool) -> None:
    """Slots behind memory, with an order and segments; rows read backwards have their distances turned round."""
    a, rows, time = attention(segments=2), 2, 6
    order = torch.stack([torch.randperm(time) + 1 for _ in range(rows)])
    segments = torch.randint(2, (rows, time))
    memory = torch.randn(rows, 2, 12, dtype=torch.float64)
    segment_memory = SegmentMemory(states=memory[:, None], documents=torch.tensor([[0, 0], [EMPTY_SLOT, 0]]))
    relative_spec = relative_mask_spec(time, memory=segment_memory, order=order, segments=segments)
    slots = torch.tensor([[1, 4, 5], [1, 4, 5]])
    mask = relative_spec.query_mask(slots)
    assert mask.masked is not None
    assert not mask.masked[0, :, :2].any()
    assert mask.masked[1, :, 0].all()
    g, x = torch.randn(rows, 3, 12, dtype=torch.float64), torch.randn(rows, time, 12, dtype=torch.float64)
    context, sign = torch.cat([memory, x], 1), -1 if backwards else 1
    results = []
    for method in ("fast", "by hand"):
        a.zero_grad()
        if method == "fast":
            distances = sinusoidal_encoding(sign * relative_spec.distances, 12, torch.float64)[None]
            output, _ = a(
                g,
                a.project_keys_values(context),
                a.project_distances(distances.expand(rows, -1, -1) if backwards else distances),
                mask,
            )
        else:
            output = by_hand(a, g, context, [3, 6, 7], mask, sign)
        (output * torch.arange(12)).sum().backward()
        results.append([output.detach(), *(p.grad for p in a.parameters())])
    for actual, other in zip(*results, strict=True):
        torch.testing.assert_close(actual, other, atol=1e-10, rtol=1e-10)


def test_the_relative_shift_is_a_view_and_unshift_inverts_it() -> None:
    unshifted = torch.arange(2 * 3 * 4 * 11.0).view(2, 3, 4, 11)
    shifted = ContiguousShift().shift(unshifted, 7)
    assert shifted.data_ptr() == unshifted[0, 0, 0, 3:].data_ptr()
    expected = torch.stack([unshifted[:, :, i, 3 - i : 10 - i] for i in range(4)], 2)
    assert torch.equal(shifted, expected)
    scattered = IndexedShift.from_positions(torch.arange(4).expand(3, -1), 4, 7)
    assert torch.equal(scattered.shift(unshifted, 7), expected)
    grad = torch.randn(2, 3, 4, 7)
    restored = ContiguousShift().unshift(grad, 11)
    assert torch.equal(ContiguousShift().shift(restored, 7), grad)
    assert torch.equal(scattered.unshift(grad, 11), restored)
    assert (restored != 0).sum() == grad.numel()


def test_dropout_keeps_the_mean_and_its_gradient_is_that_of_what_was_kept() -> None:
    a, x = attention(dropout=0.4).train(), torch.randn(1, 9, 12, dtype=torch.float64, requires_grad=True)
    relative_spec = relative_mask_spec(9)
    keys, distances = (
        a.project_keys_values(x),
        a.project_distances(sinusoidal_encoding(relative_spec.distances, 12, torch.float64)[None]),
    )
    torch.manual_seed(5)
    outputs = torch.stack([a(x, keys, distances, relative_spec.content_mask())[0].detach() for _ in range(3000)])
    assert outputs.std(0).min() > 0
    torch.testing.assert_close(
        outputs.mean(0), a.eval()(x, keys, distances, relative_spec.content_mask())[0].detach(), atol=0.15, rtol=0
    )
    a.train()

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        distances = a.project_distances(sinusoidal_encoding(relative_spec.distances, 12, torch.float64)[None])
        return a(x, a.project_keys_values(x), distances, relative_spec.content_mask())[0]

    grad = torch.autograd.grad(run(x).sum(), x)[0]
    step = torch.randn_like(x) * 1e-6
    change = (run(x + step).sum() - run(x - step).sum()) / 2
    torch.testing.assert_close(change, (grad * step).sum(), atol=1e-12, rtol=1e-5)


@pytest.mark.parametrize("width", [8, 10])
def test_sines_change_sign_with_the_distance(width: int) -> None:
    positive, negative = (sinusoidal_encoding(sign * torch.arange(5), width, torch.float64) for sign in (1, -1))
    half = width // 2
    torch.testing.assert_close(positive[:, :half], -negative[:, :half])
    torch.testing.assert_close(positive[:, half:], negative[:, half:])
    torch.testing.assert_close(
        positive[3, 1], torch.tensor(3 * 10_000 ** (-2 / width)).double().sin(), atol=1e-7, rtol=0
    )
