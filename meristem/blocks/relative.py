"""Attention that knows how far apart two tokens are, not where they stand (Dai et al. 2019, §3.3)."""

# B batch, T queries, S keys, L distances, D width, H heads, C channels of one head
#
# score(i, j) = (q_i + u)·k_j + (q_i + v)·r_{i−j}, and with segments + (q_i + s)·e_{same or other}

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Turn(Protocol):
    """How scores by distance become scores by key."""

    def read(self, places_HBTL: Tensor, keys: int) -> Tensor:
        """[H, B, T, L] → [H, B, T, S]: to each query its own window of distances."""

    def write(self, grad_HBTS: Tensor, distances: int) -> Tensor:
        """The gradient on its way back: [H, B, T, S] → [H, B, T, L], zero where nothing was read."""


class InARow:
    """Queries at the last T of the S keys, one after the other: the shift is a view, read without a copy.

    Distances fall from S − 1, so query i reads key j at T − 1 − i + j of its row. Laid flat, every row of L starts one
    earlier than the row before it, which is a row length of L − 1.
    """

    def read(self, places_HBTL: Tensor, keys: int) -> Tensor:
        """A view."""
        heads, rows, time, distances = places_HBTL.shape
        flat = places_HBTL.view(heads, rows, time * distances)[..., time - 1 : time * distances - 1]
        return flat.view(heads, rows, time, distances - 1)[..., :keys]

    def write(self, grad_HBTS: Tensor, distances: int) -> Tensor:
        """One copy into the same view of zeros."""
        places = grad_HBTS.new_zeros(*grad_HBTS.shape[:3], distances)
        self.read(places, grad_HBTS.shape[3]).copy_(grad_HBTS)
        return places


@dataclass(frozen=True)
class Scattered:
    """Queries anywhere in the text: each row says where its distances begin."""

    index: Tensor
    """[1, B, T, S] the place of each key's distance."""

    @classmethod
    def at(cls, slots_BT: Tensor, time: int, keys: int) -> Scattered:
        """Queries that stand at these of the last `time` keys."""
        first_BT = time - 1 - slots_BT
        return cls((first_BT[:, :, None] + torch.arange(keys, device=slots_BT.device))[None])

    def read(self, places_HBTL: Tensor, keys: int) -> Tensor:
        """A gather, over few queries."""
        return places_HBTL.gather(3, self.index.expand(len(places_HBTL), -1, -1, -1))

    def write(self, grad_HBTS: Tensor, distances: int) -> Tensor:
        """Its reverse: no distance is read twice by one query."""
        places = grad_HBTS.new_zeros(*grad_HBTS.shape[:3], distances)
        return places.scatter_(3, self.index.expand(len(grad_HBTS), -1, -1, -1), grad_HBTS)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one stream's queries may see, and from where; the same for every layer."""

    turn: Turn
    hidden: Tensor | None = None
    """[B or 1, T, S] true where a key is out of sight."""
    blind: Tensor | None = None
    """[B, T] true where a query sees nothing at all, where that can be."""
    differ: Tensor | None = None
    """[B, T, S] 1 where query and key are of different segments."""


class Biases(nn.Module):
    """What every query asks for whatever it is: u of content, v of distance, s of segments."""

    def __init__(self, heads: int, channels: int, *, segments: bool = False) -> None:
        super().__init__()
        self.content = nn.Parameter(torch.zeros(heads, channels))
        self.distance = nn.Parameter(torch.zeros(heads, channels))
        self.segment = nn.Parameter(torch.zeros(heads, channels)) if segments else None


class RelativeAttention(nn.Module):
    """Keys and values are read once, and any number of streams asks them."""

    def __init__(self, width: int, heads: int, biases: Biases, *, segments: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.channels, self.dropout = heads, width // heads, dropout
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.relative = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.biases = biases
        self.segments = nn.Parameter(torch.zeros(segments, heads, self.channels)) if segments else None

    def keys(self, context_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [H, B, S, C] of everything that can be seen."""
        rows, time, _ = context_BSD.shape
        both = self.key_value(context_BSD).view(rows, time, 2, self.heads, self.channels).permute(2, 3, 0, 1, 4)
        k, v = both.contiguous().unbind(0)
        return k, v

    def distances(self, positions_XLD: Tensor) -> Tensor:
        """Keys [H, X, L, C] of distances; X is 1, or as many as there are rows."""
        ways, number, _ = positions_XLD.shape
        made = self.relative(positions_XLD).view(ways, number, self.heads, self.channels)
        return made.permute(2, 0, 1, 3).contiguous()  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(
        self, x_BTD: Tensor, keys: tuple[Tensor, Tensor], distances_HXLC: Tensor, look: Look
    ) -> tuple[Tensor, Tensor]:
        """A stream's queries → what they found [B, T, D], and the weights [H, B, T, S] they gave each key."""
        rows, time, _ = x_BTD.shape
        q = self.query(x_BTD).view(rows, time, self.heads, self.channels).permute(2, 0, 1, 3).contiguous()
        content, distance = (_beside(bias, q) for bias in (self.biases.content, self.biases.distance))
        mixed, weights = _Mix.apply(  # type: ignore[no-untyped-call]  # autograd is untyped
            q + content,
            q + distance,
            *keys,
            distances_HXLC,
            self._segments(q) if look.differ is not None else None,
            look,
            self.dropout if self.training else 0.0,
        )
        if look.blind is not None:
            mixed = mixed.masked_fill(look.blind[None, :, :, None], 0)
        return self.output(mixed.permute(1, 2, 0, 3).reshape(rows, time, -1)), weights

    def _segments(self, q_HBTC: Tensor) -> Tensor:
        """How much more a query wants keys of the other segment than of its own; what both get alike cancels."""
        assert self.segments is not None and self.biases.segment is not None
        own, other = self.segments.to(q_HBTC.dtype)
        asked = q_HBTC + _beside(self.biases.segment, q_HBTC)
        return torch.einsum("hbtc,hc->hbt", asked, (other - own) / math.sqrt(self.channels))


def _beside(bias_HC: Tensor, q_HBTC: Tensor) -> Tensor:
    return bias_HC.to(q_HBTC.dtype)[:, None, None]


def waves(distances_L: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Sines, then cosines, of distances of either sign: [..., L] → [..., L, D]."""
    wide = torch.promote_types(dtype, torch.float32)
    power = torch.arange(0, width, 2, device=distances_L.device).to(wide) / width
    angle = distances_L.to(wide)[..., None] * 10_000.0**-power
    return torch.cat([angle.sin(), angle.cos()[..., : width // 2]], -1).to(dtype)


class _Mix(torch.autograd.Function):
    """softmax((a·k + turned b·r)/√C)·v; only the weights are kept for the way back, which has no more products."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        k: Tensor,
        v: Tensor,
        r: Tensor,
        segment_HBT: Tensor | None,
        look: Look,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        scale = 1 / math.sqrt(a.shape[-1])
        shape = (*a.shape[:3], k.shape[2])
        turned = look.turn.read(_against(b, r), shape[3]).flatten(0, 1)
        scores = torch.baddbmm(turned, _flat(a), _flat(k).mT, beta=scale, alpha=scale).view(shape)
        if segment_HBT is not None and look.differ is not None:
            scores.addcmul_(segment_HBT[..., None], look.differ)
        if look.hidden is not None:
            scores.masked_fill_(look.hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).to(v.dtype)
        kept = torch.empty_like(weights).bernoulli_(1 - dropout).div_(1 - dropout) if dropout else None
        mixed = (weights if kept is None else weights * kept) @ v
        ctx.look, ctx.scale, ctx.distances = look, scale, r.shape[2]
        ctx.save_for_backward(a, b, k, v, r, weights, kept)
        ctx.mark_non_differentiable(weights)
        return mixed, weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, b, k, v, r, weights, kept = ctx.saved_tensors
        grad = grads[0].contiguous()
        used = weights if kept is None else weights * kept
        grad_v = used.mT @ grad
        grad_weights = grad @ v.mT
        if kept is not None:
            grad_weights.mul_(kept)
        scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
        segment = None
        if ctx.needs_input_grad[5]:
            segment = (scores * ctx.look.differ).sum(-1)
        scores.mul_(ctx.scale)
        grad_a, grad_k = scores @ k, scores.mT @ a
        grad_b, grad_r = _against_back(ctx.look.turn.write(scores, ctx.distances), b, r)
        return grad_a, grad_b, grad_k, grad_v, grad_r, segment, None, None


def _flat(x_HBTC: Tensor) -> Tensor:
    return x_HBTC.flatten(0, 1)


def _against(b_HBTC: Tensor, r_HXLC: Tensor) -> Tensor:
    """[H, B, T, L]: all rows of a head in one product where they share their distances."""
    heads, rows, time, channels = b_HBTC.shape
    if r_HXLC.shape[1] > 1:
        return b_HBTC @ r_HXLC.mT
    return torch.bmm(b_HBTC.view(heads, rows * time, channels), r_HXLC[:, 0].mT).view(heads, rows, time, -1)


def _against_back(grad_HBTL: Tensor, b_HBTC: Tensor, r_HXLC: Tensor) -> tuple[Tensor, Tensor]:
    heads, rows, time, channels = b_HBTC.shape
    if r_HXLC.shape[1] > 1:
        return grad_HBTL @ r_HXLC, grad_HBTL.mT @ b_HBTC
    grad = grad_HBTL.view(heads, rows * time, -1)
    grad_r = torch.bmm(grad.mT, b_HBTC.view(heads, rows * time, channels))
    return torch.bmm(grad, r_HXLC[:, 0]).view_as(b_HBTC), grad_r[:, None]


def dropped(x: Tensor, dropout: float, training: bool) -> Tensor:
    """Dropout where there is any."""
    return F.dropout(x, dropout, training) if dropout else x
