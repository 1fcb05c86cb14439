"""Multi-head attention: one fused projection, grouped heads, rotary positions, a key-value cache."""

# B batch, T queries, S keys, D width, H heads, G key-value heads, C channels of one head

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.positions import Rotary
from meristem.blocks.sight import Sight


@dataclass(frozen=True, kw_only=True)
class Past:
    """One layer's slots of a cache: slot p holds position p of its row."""

    keys: Tensor
    """[B, G, slots, C]"""
    values: Tensor
    at: Tensor
    """[B, T] positions of the new tokens."""
    uniform: int | None
    """The first new position where all rows agree on it."""
    filled: int
    """Slots in use after this call."""

    def push(self, k_BGTC: Tensor, v_BGTC: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values, and return everything so far."""
        if self.uniform is not None:
            span = slice(self.uniform, self.uniform + k_BGTC.shape[2])
            self.keys[:, :, span] = k_BGTC
            self.values[:, :, span] = v_BGTC
        else:
            index = self.at[:, None, :, None].expand_as(k_BGTC)
            self.keys.scatter_(2, index, k_BGTC)
            self.values.scatter_(2, index, v_BGTC)
        return self.keys[:, :, : self.filled], self.values[:, :, : self.filled]


class Mixing(nn.Module):
    """Values mixed by softmax(QKᵀ · scale): what every attention does once it has queries, keys and values."""

    def __init__(
        self, width: int, heads: int, *, groups: int | None, dropout: float, scale: float | None = None
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.channels = heads, groups or heads, width // heads
        self.dropout, self.scale = dropout, scale

    def mix(self, q_BHTC: Tensor, k_BGSC: Tensor, v_BGSC: Tensor, sight: Sight) -> Tensor:
        """[B, T, D] of everything a query sees, weighed."""
        if sight.weights is not None:
            mixed = self._explicit(q_BHTC, k_BGSC, v_BGSC, sight)
        else:
            mixed = F.scaled_dot_product_attention(
                q_BHTC,
                k_BGSC,
                v_BGSC,
                attn_mask=sight.mask,
                is_causal=sight.causal,
                dropout_p=self.dropout if self.training else 0.0,
                scale=self.scale,
                enable_gqa=self.groups != self.heads,
            )
        return mixed.transpose(1, 2).flatten(2)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """The same by hand; the weights [B, H, T, S] go to the pass that asked for them, never onto the module."""
        if self.groups != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * (self.channels**-0.5 if self.scale is None else self.scale)
        if sight.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        if sight.mask is not None:
            scores = scores + sight.mask
        weights = scores.softmax(-1)
        if sight.weights is not None:
            sight.weights.append(weights)
        return F.dropout(weights, self.dropout, self.training) @ v


class Attention(Mixing):
    """softmax(QKᵀ/√C)V with H heads, of which keys and values may have fewer."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        rotary: Rotary | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__(width, heads, groups=groups, dropout=dropout, scale=scale)
        self.rotary = rotary
        self.project = nn.Linear(width, (heads + 2 * self.groups) * self.channels, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(self, x_BTD: Tensor, sight: Sight, past: Past | None = None, wanted_N: Tensor | None = None) -> Tensor:
        """[B, T, D] → [B, T, D], or [N, D] at the wanted ones of the B·T positions."""
        q_BHTC, k_BGTC, v_BGTC = self._split(self.project(x_BTD), None if past is None else past.at)
        if past is not None:
            k_BGTC, v_BGTC = past.push(k_BGTC, v_BGTC)
        mixed_BTD = self.mix(q_BHTC, k_BGTC, v_BGTC, sight)
        return self.output(mixed_BTD if wanted_N is None else picked(mixed_BTD, wanted_N))  # type: ignore[no-any-return]  # nn.Module.__call__

    def _split(self, projected: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        rows, time, _ = projected.shape
        h, g = self.heads, self.groups
        each = projected.view(rows, time, h + 2 * g, self.channels)
        # one split each: its gradient is one concatenation, where slices would each fill a whole tensor with zeros
        if self.rotary is None:
            q, k, v = torch.split(each, [h, g, g], dim=2)
        else:
            both, v = torch.split(each, [h + g, g], dim=2)
            q, k = torch.split(self.rotary(both, positions), [h, g], dim=2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def picked(x_BTD: Tensor, wanted_N: Tensor) -> Tensor:
    """The states at flat positions: [B, T, D] → [N, D]."""
    return x_BTD.flatten(0, 1).index_select(0, wanted_N)
