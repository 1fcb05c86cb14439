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


def outlook(time: int, **facts: object) -> RelativeMaskSpec:
    return RelativeMaskSpec(
        **{"num_tokens": time, "causal": False, "device": torch.device("cpu"), "dtype": torch.float64, **facts}
    )


def by_hand(
    a: RelativeAttention, x: Tensor, context: Tensor, at: list[int], look: RelativeMask, sign: int = 1
) -> Tensor:
    """The paper's formula, one pair of tokens at a time."""
    rows, keys = context.shape[:2]
    heads = lambda made: made.view(*made.shape[:-1], 3, 4)  # noqa: E731
    q, k = heads(a.query(x)), heads(a.key_value(context)[..., :12])
    v, out = heads(a.key_value(context)[..., 12:]), torch.zeros(rows, len(at), 3, 4, dtype=torch.float64)
    for b in range(rows):
        for i, place in enumerate(at):
            scores = torch.full((keys, 3), -math.inf, dtype=torch.float64)
            for j in range(keys):
                if look.masked is not None and look.masked.expand(rows, -1, -1)[b, i, j]:
                    continue
                r = heads(a.relative(sinusoidal_encoding(torch.tensor([sign * (place - j)]), 12, torch.float64)))[0]
                scores[j] = ((q[b, i] + a.biases.content) * k[b, j] + (q[b, i] + a.biases.distance) * r).sum(-1)
                if look.different_segment is not None:
                    asked = q[b, i] + a.biases.segment
                    scores[j] = scores[j] + (asked * a.segments[int(look.different_segment[b, i, j])]).sum(-1)
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
    held = None
    if slots:
        held = SegmentMemory(states=memory[:, None], documents=torch.zeros(2, slots, dtype=torch.long))
    scene = outlook(time, causal=causal, memory=held)
    look, found = scene.content_mask(), []
    for way in ("fast", "by hand"):
        a.zero_grad()
        x = x.detach().requires_grad_()
        context = torch.cat([memory, x], 1)
        if way == "fast":
            made, weights = a(
                x,
                a.project_keys_values(context),
                a.project_distances(sinusoidal_encoding(scene.distances, 12, torch.float64)[None]),
                look,
            )
            assert weights.shape == (3, 2, time, slots + time)
        else:
            made = by_hand(a, x, context, list(range(slots, slots + time)), look)
        (made * torch.arange(12)).sum().backward()
        found.append([made.detach(), x.grad, *(p.grad for p in a.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("backwards", [False, True])
def test_queries_anywhere_in_the_text(backwards: bool) -> None:
    """Slots behind memory, with an order and segments; rows read backwards have their distances turned round."""
    a, rows, time = attention(segments=2), 2, 6
    order = torch.stack([torch.randperm(time) + 1 for _ in range(rows)])
    segments = torch.randint(2, (rows, time))
    memory = torch.randn(rows, 2, 12, dtype=torch.float64)
    segment_memory = SegmentMemory(states=memory[:, None], documents=torch.tensor([[0, 0], [EMPTY_SLOT, 0]]))
    scene = outlook(time, memory=segment_memory, order=order, segments=segments)
    slots = torch.tensor([[1, 4, 5], [1, 4, 5]])
    look = scene.query_mask(slots)
    assert look.masked is not None
    assert not look.masked[0, :, :2].any()
    assert look.masked[1, :, 0].all()
    g, x = torch.randn(rows, 3, 12, dtype=torch.float64), torch.randn(rows, time, 12, dtype=torch.float64)
    context, sign = torch.cat([memory, x], 1), -1 if backwards else 1
    found = []
    for way in ("fast", "by hand"):
        a.zero_grad()
        if way == "fast":
            far = sinusoidal_encoding(sign * scene.distances, 12, torch.float64)[None]
            made, _ = a(
                g,
                a.project_keys_values(context),
                a.project_distances(far.expand(rows, -1, -1) if backwards else far),
                look,
            )
        else:
            made = by_hand(a, g, context, [3, 6, 7], look, sign)
        (made * torch.arange(12)).sum().backward()
        found.append([made.detach(), *(p.grad for p in a.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def test_the_relative_shift_is_a_view_and_unshift_inverts_it() -> None:
    places = torch.arange(2 * 3 * 4 * 11.0).view(2, 3, 4, 11)
    turned = ContiguousShift().shift(places, 7)
    assert turned.data_ptr() == places[0, 0, 0, 3:].data_ptr()
    expected = torch.stack([places[:, :, i, 3 - i : 10 - i] for i in range(4)], 2)
    assert torch.equal(turned, expected)
    scattered = IndexedShift.from_positions(torch.arange(4).expand(3, -1), 4, 7)
    assert torch.equal(scattered.shift(places, 7), expected)
    grad = torch.randn(2, 3, 4, 7)
    back = ContiguousShift().unshift(grad, 11)
    assert torch.equal(ContiguousShift().shift(back, 7), grad)
    assert torch.equal(scattered.unshift(grad, 11), back)
    assert (back != 0).sum() == grad.numel()


def test_dropout_keeps_the_mean_and_its_gradient_is_that_of_what_was_kept() -> None:
    a, x = attention(dropout=0.4).train(), torch.randn(1, 9, 12, dtype=torch.float64, requires_grad=True)
    scene = outlook(9)
    keys, far = (
        a.project_keys_values(x),
        a.project_distances(sinusoidal_encoding(scene.distances, 12, torch.float64)[None]),
    )
    torch.manual_seed(5)
    many = torch.stack([a(x, keys, far, scene.content_mask())[0].detach() for _ in range(3000)])
    assert many.std(0).min() > 0
    torch.testing.assert_close(
        many.mean(0), a.eval()(x, keys, far, scene.content_mask())[0].detach(), atol=0.15, rtol=0
    )
    a.train()

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        far = a.project_distances(sinusoidal_encoding(scene.distances, 12, torch.float64)[None])
        return a(x, a.project_keys_values(x), far, scene.content_mask())[0]

    grad = torch.autograd.grad(run(x).sum(), x)[0]
    step = torch.randn_like(x) * 1e-6
    change = (run(x + step).sum() - run(x - step).sum()) / 2
    torch.testing.assert_close(change, (grad * step).sum(), atol=1e-12, rtol=1e-5)


@pytest.mark.parametrize("width", [8, 10])
def test_sines_change_sign_with_the_distance(width: int) -> None:
    there, back = (sinusoidal_encoding(sign * torch.arange(5), width, torch.float64) for sign in (1, -1))
    half = width // 2
    torch.testing.assert_close(there[:, :half], -back[:, :half])
    torch.testing.assert_close(there[:, half:], back[:, half:])
    torch.testing.assert_close(there[3, 1], torch.tensor(3 * 10_000 ** (-2 / width)).double().sin(), atol=1e-7, rtol=0)
