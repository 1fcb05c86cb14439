"""The writing half of an encoder-decoder: layers that see what is written so far and the whole source.

Without a source cross-attention is left out, and the same layers are a causal language model.
"""

# B batch, T tokens, S places of the source, D width, L layers, G key-value heads, C channels of one head

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meristem.batch import Hidden
from meristem.blocks.attention import Attention, Past
from meristem.blocks.cross import CrossAttention
from meristem.blocks.feed_forward import FeedForward
from meristem.blocks.initial import damp, normal_weights
from meristem.blocks.layer import NormPlace
from meristem.blocks.norms import norm
from meristem.blocks.positions import Rotary
from meristem.blocks.relative_bias import RelativeBias
from meristem.blocks.sight import Scene, Sight
from meristem.blocks.stack import StackSettings


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward, each with its residual and its norm."""

    def __init__(
        self,
        attention: Attention,
        cross: CrossAttention,
        feed_forward: FeedForward,
        norms: tuple[nn.Module, nn.Module, nn.Module],
        *,
        place: NormPlace,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.attention_norm, self.cross_norm, self.feed_forward_norm = norms
        self.place, self.dropout = place, dropout

    def forward(
        self, x: Tensor, sight: Sight, pair: tuple[Tensor, Tensor] | None, source_sight: Sight, past: Past | None = None
    ) -> Tensor:
        """[B, T, D] → [B, T, D]; `pair` are the source's keys and values, none where there is no source."""
        if self.place == "pre":
            x = x + self._drop(self.attention(self.attention_norm(x), sight, past))
            if pair is not None:
                x = x + self._drop(self.cross(self.cross_norm(x), pair, source_sight))
            return x + self._drop(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self._drop(self.attention(x, sight, past)))
        if pair is not None:
            x = self.cross_norm(x + self._drop(self.cross(x, pair, source_sight)))
        return self.feed_forward_norm(x + self._drop(self.feed_forward(x)))  # type: ignore[no-any-return]  # nn.Module.__call__

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Decoder(nn.Module):
    """Decoder layers one above the other, and the final norm that pre-norm ones end with."""

    def __init__(
        self, settings: StackSettings, layers: int, *, scale: float | None = None, relative: RelativeBias | None = None
    ) -> None:
        super().__init__()
        self.settings, self.scale, self.relative = settings, scale, relative
        channels = settings.width // settings.heads
        rotary = Rotary(settings.length, channels, settings.rotary_base) if settings.positions == "rotary" else None
        self.layers = nn.ModuleList(self._layer(rotary) for _ in range(layers))
        self.final_norm = self._norm() if settings.norm_place == "pre" else nn.Identity()
        self.recompute = False
        """Activations are computed again in the backward pass instead of kept."""

    def _norm(self) -> nn.Module:
        return norm(self.settings.norm, self.settings.width, self.settings.norm_epsilon, bias=self.settings.bias)

    def _layer(self, rotary: Rotary | None) -> DecoderLayer:
        s = self.settings
        return DecoderLayer(
            Attention(
                s.width, s.heads, groups=s.groups, rotary=rotary, dropout=s.dropout, bias=s.bias, scale=self.scale
            ),
            CrossAttention(s.width, s.heads, groups=s.groups, dropout=s.dropout, bias=s.bias, scale=self.scale),
            FeedForward(s.width, s.inner or 4 * s.width, s.activation, bias=s.bias),
            (self._norm(), self._norm(), self._norm()),
            place=s.norm_place,
            dropout=s.dropout,
        )

    def initialise(self) -> None:
        """Normal weights, zero biases, and the residual projections as the settings say."""
        normal_weights(self, self.settings.initial)
        outputs = (
            out for each in self.each() for out in (each.attention.output, each.cross.output, each.feed_forward.narrow)
        )
        damp(outputs, self.settings.output_initial)

    def each(self) -> Iterator[DecoderLayer]:
        """The layers with their type, which a ModuleList forgets."""
        return (cast(DecoderLayer, layer) for layer in self.layers)

    def window(self, number: int) -> int | None:
        """How far back layer `number` sees what is written, where that is bounded."""
        return self.settings.window if (number + 1) % self.settings.window_every == 0 else None

    def forward(
        self,
        x_BTD: Tensor,
        source: Tensor | None,
        *,
        source_present: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Tensor | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """[B, T, D] → Hidden; `attention` is that to the source, and `extra` has that among the tokens.

        `source` are an encoder's states [B, S, D], or what `remember` made of them; without one, `attention` is that
        among the tokens. A cache [B, L, 2, G, slots, C] is filled with the keys and values of the tokens. `documents`
        [B, T] keeps documents packed into one row apart. Padding comes after what a row holds, so nothing sees it.
        """
        x, time, source_sight = x_BTD, x_BTD.shape[1], seen_source(source_present, x_BTD.dtype)
        scene = Scene(queries=time, keys=time, causal=True, dtype=x.dtype, device=x.device, documents=documents)
        sights = {window: self._sight(scene, window) for window in {self.window(n) for n in range(len(self.layers))}}
        kept, inner, outer = [x], list[Tensor](), list[Tensor]()
        if "attention" in want:
            sights = {window: replace(sight, weights=inner) for window, sight in sights.items()}
            source_sight = replace(source_sight, weights=outer)
        for number, layer in enumerate(self.each()):
            pair = None if source is None else _pair(layer, source, number)
            past = None if cache is None else _past(cache[:, number], time)
            x = self._through(layer, x, sights[self.window(number)], pair, source_sight, past)
            if "layers" in want:
                kept.append(x)
        return Hidden(
            last=self.final_norm(x),
            layers=tuple(kept) if "layers" in want else (),
            attention=tuple(inner if source is None else outer),
            extra={"decoder_attention": tuple(inner)} if "attention" in want and source is not None else {},
        )

    def _through(self, layer: DecoderLayer, *given: Any) -> Tensor:
        if self.recompute and self.training:
            return checkpoint(layer, *given, use_reentrant=False)  # type: ignore[no-any-return]  # torch's is untyped
        return layer(*given)  # type: ignore[no-any-return]  # nn.Module.__call__

    def _sight(self, scene: Scene, window: int | None) -> Sight:
        sight = scene.sight(window)
        return sight if self.relative is None else self.relative(sight, scene.queries, scene.keys)

    def remember(self, source_BSD: Tensor) -> Tensor:
        """[B, L, 2, G, S, C] every layer's keys and values of a source."""
        return torch.stack([torch.stack(layer.cross.pair(source_BSD), 1) for layer in self.each()], 1)

    def cache(self, rows: int, slots: int, like: Tensor) -> Tensor:
        """[B, L, 2, G, slots, C] room for the keys and values of what will be written."""
        s = self.settings
        return like.new_zeros(rows, len(self.layers), 2, s.groups or s.heads, slots, s.width // s.heads)


def seen_source(present_BS: Tensor | None, dtype: torch.dtype) -> Sight:
    """Every query sees the whole source, padding left out."""
    if present_BS is None:
        return Sight()
    mask = torch.zeros(present_BS.shape, dtype=dtype, device=present_BS.device).masked_fill_(~present_BS, -torch.inf)
    return Sight(mask=mask[:, None, None])


def _pair(layer: DecoderLayer, source: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Keys and values of a source for one layer, computed from its states or read from what `remember` kept."""
    if source.ndim == 3:
        return layer.cross.pair(source)
    keys, values = source[:, number].unbind(1)
    return keys, values


def _past(slots_B2GSC: Tensor, time: int) -> Past:
    at = torch.arange(time, device=slots_B2GSC.device).expand(len(slots_B2GSC), time)
    return Past(keys=slots_B2GSC[:, 0], values=slots_B2GSC[:, 1], at=at, uniform=0, filled=time)
