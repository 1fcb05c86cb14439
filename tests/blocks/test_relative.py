from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from meristem.blocks.outlook import Outlook
from meristem.blocks.recurrence import NOTHING, Recurrence
from meristem.blocks.relative import Biases, InARow, Look, RelativeAttention, Scattered, waves


def attention(segments: int = 0, dropout: float = 0.0) -> RelativeAttention:
    torch.manual_seed(0)
    made = RelativeAttention(12, 3, Biases(3, 4, segments=segments > 0), segments=segments, dropout=dropout)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double()


def outlook(time: int, **facts: object) -> Outlook:
    return Outlook(**{"time": time, "causal": False, "device": torch.device("cpu"), "dtype": torch.float64, **facts})


def by_hand(a: RelativeAttention, x: Tensor, context: Tensor, at: list[int], look: Look, sign: int = 1) -> Tensor:
    """The paper's formula, one pair of tokens at a time."""
    rows, keys = context.shape[:2]
    heads = lambda made: made.view(*made.shape[:-1], 3, 4)  # noqa: E731
    q, k = heads(a.query(x)), heads(a.key_value(context)[..., :12])
    v, out = heads(a.key_value(context)[..., 12:]), torch.zeros(rows, len(at), 3, 4, dtype=torch.float64)
    for b in range(rows):
        for i, place in enumerate(at):
            scores = torch.full((keys, 3), -math.inf, dtype=torch.float64)
            for j in range(keys):
                if look.hidden is not None and look.hidden.expand(rows, -1, -1)[b, i, j]:
                    continue
                r = heads(a.relative(waves(torch.tensor([sign * (place - j)]), 12, torch.float64)))[0]
                scores[j] = ((q[b, i] + a.biases.content) * k[b, j] + (q[b, i] + a.biases.distance) * r).sum(-1)
                if look.differ is not None:
                    asked = q[b, i] + a.biases.segment
                    scores[j] = scores[j] + (asked * a.segments[int(look.differ[b, i, j])]).sum(-1)
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
        held = Recurrence(states=memory[:, None], documents=torch.zeros(2, slots, dtype=torch.long))
    scene = outlook(time, causal=causal, memory=held)
    look, found = scene.content(), []
    for way in ("fast", "by hand"):
        a.zero_grad()
        x = x.detach().requires_grad_()
        context = torch.cat([memory, x], 1)
        if way == "fast":
            made, weights = a(x, a.keys(context), a.distances(waves(scene.distances, 12, torch.float64)[None]), look)
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
    held = Recurrence(states=memory[:, None], documents=torch.tensor([[0, 0], [NOTHING, 0]]))
    scene = outlook(time, memory=held, order=order, segments=segments)
    slots = torch.tensor([[1, 4, 5], [1, 4, 5]])
    look = scene.query(slots)
    assert look.hidden is not None
    assert not look.hidden[0, :, :2].any()
    assert look.hidden[1, :, 0].all()
    g, x = torch.randn(rows, 3, 12, dtype=torch.float64), torch.randn(rows, time, 12, dtype=torch.float64)
    context, sign = torch.cat([memory, x], 1), -1 if backwards else 1
    found = []
    for way in ("fast", "by hand"):
        a.zero_grad()
        if way == "fast":
            far = waves(sign * scene.distances, 12, torch.float64)[None]
            made, _ = a(g, a.keys(context), a.distances(far.expand(rows, -1, -1) if backwards else far), look)
        else:
            made = by_hand(a, g, context, [3, 6, 7], look, sign)
        (made * torch.arange(12)).sum().backward()
        found.append([made.detach(), *(p.grad for p in a.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def test_the_shift_is_a_view_and_its_reverse_puts_everything_back() -> None:
    places = torch.arange(2 * 3 * 4 * 11.0).view(2, 3, 4, 11)
    turned = InARow().read(places, 7)
    assert turned.data_ptr() == places[0, 0, 0, 3:].data_ptr()
    expected = torch.stack([places[:, :, i, 3 - i : 10 - i] for i in range(4)], 2)
    assert torch.equal(turned, expected)
    scattered = Scattered.at(torch.arange(4).expand(3, -1), 4, 7)
    assert torch.equal(scattered.read(places, 7), expected)
    grad = torch.randn(2, 3, 4, 7)
    back = InARow().write(grad, 11)
    assert torch.equal(InARow().read(back, 7), grad)
    assert torch.equal(scattered.write(grad, 11), back)
    assert (back != 0).sum() == grad.numel()


def test_dropout_keeps_the_mean_and_its_gradient_is_that_of_what_was_kept() -> None:
    a, x = attention(dropout=0.4).train(), torch.randn(1, 9, 12, dtype=torch.float64, requires_grad=True)
    scene = outlook(9)
    keys, far = a.keys(x), a.distances(waves(scene.distances, 12, torch.float64)[None])
    torch.manual_seed(5)
    many = torch.stack([a(x, keys, far, scene.content())[0].detach() for _ in range(3000)])
    assert many.std(0).min() > 0
    torch.testing.assert_close(many.mean(0), a.eval()(x, keys, far, scene.content())[0].detach(), atol=0.15, rtol=0)
    a.train()

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        far = a.distances(waves(scene.distances, 12, torch.float64)[None])
        return a(x, a.keys(x), far, scene.content())[0]

    grad = torch.autograd.grad(run(x).sum(), x)[0]
    step = torch.randn_like(x) * 1e-6
    change = (run(x + step).sum() - run(x - step).sum()) / 2
    torch.testing.assert_close(change, (grad * step).sum(), atol=1e-12, rtol=1e-5)


@pytest.mark.parametrize("width", [8, 10])
def test_waves_turn_round_with_the_sign(width: int) -> None:
    there, back = (waves(sign * torch.arange(5), width, torch.float64) for sign in (1, -1))
    half = width // 2
    torch.testing.assert_close(there[:, :half], -back[:, :half])
    torch.testing.assert_close(there[:, half:], back[:, half:])
    torch.testing.assert_close(there[3, 1], torch.tensor(3 * 10_000 ** (-2 / width)).double().sin(), atol=1e-7, rtol=0)
