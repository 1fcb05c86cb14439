"""Layers one above the other, with everything a family may choose about them as settings."""

# B batch, T tokens, D width, L layers, G key-value heads, C channels of one head

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meristem.batch import Hidden, State
from meristem.blocks.attention import Attention, Past
from meristem.blocks.feed_forward import ActivationName, FeedForward
from meristem.blocks.initial import OutputInitial, damp, normal_weights, refuse_uneven_heads
from meristem.blocks.layer import Layer, NormPlace
from meristem.blocks.norms import NormName, norm
from meristem.blocks.positions import PositionName, Rotary
from meristem.blocks.relative_bias import RelativeBias
from meristem.blocks.sight import Scene, Sight
from meristem.dependences import Dependences, when
from meristem.settings import Settings


class StackSettings(Settings):
    """Width, depth and manner of a stack of layers."""

    needs: ClassVar[Dependences] = {
        "rotary_base": (when("positions", "rotary"),),
        "window_every": (when("window"),),
    }

    layers: int = Field(12, ge=1)
    """How many layers."""
    width: int = Field(768, ge=8)
    """Channels of a hidden state (d_model)."""
    heads: int = Field(12, ge=1)
    """Attention heads; they divide the width."""
    groups: int | None = Field(None, ge=1)
    """Key-value heads where fewer than heads (grouped-query attention)."""
    inner: int | None = Field(None, ge=8)
    """Channels inside the feed-forward part; 4 × width unless set."""
    length: int = Field(512, ge=4)
    """The longest input, in tokens."""
    activation: ActivationName = "gelu"
    """gelu, gelu_tanh, relu, relu6, swiglu or geglu."""
    norm: NormName = "layer"
    """layer or rms."""
    norm_place: NormPlace = "pre"
    """Norm before each part (pre) or after its residual (post)."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """What keeps a norm from dividing by zero."""
    positions: PositionName = "learned"
    """learned, sinusoidal, rotary or none."""
    rotary_base: float = Field(10_000.0, gt=1)
    """The longest wavelength of rotary positions, in units of 2π tokens."""
    window: int | None = Field(None, ge=1)
    """Banded attention: only keys less than this far away are seen."""
    window_every: int = Field(1, ge=1)
    """Which layers are banded: every layer (1), every second (2, GPT-3's alternation), …"""
    bias: bool = True
    """Biases in projections."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of activations dropped in training."""
    initial: float = Field(0.02, gt=0)
    """Standard deviation of initial weights."""
    output_initial: OutputInitial = "normal"
    """Projections into the residual stream: like the rest, scaled by 1/√(2·layers) (GPT-2), or zero."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        refuse_uneven_heads(self.width, self.heads)
        if self.groups is not None and self.heads % self.groups:
            raise ValueError(f"groups: {self.groups} key-value heads do not divide {self.heads} heads")
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise ValueError(
                f"positions: rotary needs an even number of channels per head, not {self.width // self.heads}"
            )
        return self


class Stack(nn.Module):
    """The layers of one stack, and the final norm that pre-norm stacks end with."""

    def __init__(
        self, settings: StackSettings, *, scale: float | None = None, relative: RelativeBias | None = None
    ) -> None:
        super().__init__()
        self.settings, self.scale, self.relative = settings, scale, relative
        channels = settings.width // settings.heads
        rotary = Rotary(settings.length, channels, settings.rotary_base) if settings.positions == "rotary" else None
        self.layers = nn.ModuleList(self._layer(rotary) for _ in range(settings.layers))
        self.final_norm = self._norm() if settings.norm_place == "pre" else nn.Identity()
        self.recompute = False
        """Activations are computed again in the backward pass instead of kept."""

    def _norm(self) -> nn.Module:
        return norm(self.settings.norm, self.settings.width, self.settings.norm_epsilon, bias=self.settings.bias)

    def _layer(self, rotary: Rotary | None) -> Layer:
        s = self.settings
        return Layer(
            Attention(
                s.width, s.heads, groups=s.groups, rotary=rotary, dropout=s.dropout, bias=s.bias, scale=self.scale
            ),
            FeedForward(s.width, s.inner or 4 * s.width, s.activation, bias=s.bias),
            (self._norm(), self._norm()),
            place=s.norm_place,
            dropout=s.dropout,
        )

    def initialise(self) -> None:
        """Normal weights, zero biases, and the residual projections as the settings say."""
        normal_weights(self, self.settings.initial)
        outputs = (out for layer in self._each() for out in (layer.attention.output, layer.feed_forward.narrow))
        damp(outputs, self.settings.output_initial)

    def forward(
        self,
        x: Tensor,
        *,
        causal: bool,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
        wanted: Tensor | None = None,
    ) -> Hidden:
        """[B, T, D] → Hidden; `want` may name "layers" and "attention", `wanted` the only positions to be read."""
        cache = _Cache(state, x) if state else None
        scene = Scene(
            queries=x.shape[1],
            keys=cache.filled if cache else x.shape[1],
            causal=causal,
            dtype=x.dtype,
            device=x.device,
            positions=cache.at if cache and cache.ragged else None,
            present=present,
            documents=documents,
        )
        dense, banded = self._sight(scene), self._sight(scene, self.settings.window) if self.settings.window else None
        kept, weights = [x], list[Tensor]()
        for number, layer in enumerate(self._each()):
            sight = banded if banded is not None and (number + 1) % self.settings.window_every == 0 else dense
            sight = replace(sight, weights=weights) if "attention" in want else sight
            past = cache.layer(number) if cache else None
            x = self._through(layer, x, sight, past, wanted if number == self.settings.layers - 1 else None)
            if "layers" in want:
                kept.append(x)
        return Hidden(
            last=self.final_norm(x),
            wanted=wanted,
            layers=tuple(kept) if "layers" in want else (),
            attention=tuple(weights),
            state=cache.advanced() if cache else {},
        )

    def _sight(self, scene: Scene, window: int | None = None) -> Sight:
        sight = scene.sight(window)
        return sight if self.relative is None else self.relative(sight, scene.queries, scene.keys)

    def _each(self) -> Iterator[Layer]:
        """The layers with their type, which a ModuleList forgets."""
        return (cast(Layer, layer) for layer in self.layers)

    def _through(self, layer: Layer, x: Tensor, sight: Sight, past: Past | None, wanted: Tensor | None) -> Tensor:
        if self.recompute and self.training and past is None:
            return checkpoint(layer, x, sight, None, wanted, use_reentrant=False)  # type: ignore[no-any-return]  # torch's is untyped
        return layer(x, sight, past, wanted)  # type: ignore[no-any-return]  # nn.Module.__call__

    def cache(self, rows: int, slots: int, like: Tensor) -> State:
        """Room for `slots` positions of `rows` rows: what a session starts from."""
        s = self.settings
        shape = (rows, s.layers, 2, s.groups or s.heads, slots, s.width // s.heads)
        return {"cache": like.new_zeros(shape), "next": torch.zeros(rows, dtype=torch.long, device=like.device)}


class _Cache:
    """A state's tensors read for one forward pass."""

    def __init__(self, state: State, x: Tensor) -> None:
        self.tensor, self.next, self.time = state["cache"], state["next"], x.shape[1]
        low, high = (int(v) for v in self.next.aminmax())
        self.uniform = low if low == high else None
        self.filled = high + self.time
        self.at = self.next[:, None] + torch.arange(self.time, device=x.device)
        self.ragged = self.uniform is None or (self.time > 1 and low > 0)

    def layer(self, number: int) -> Past:
        return Past(
            keys=self.tensor[:, number, 0],
            values=self.tensor[:, number, 1],
            at=self.at,
            uniform=self.uniform,
            filled=self.filled,
        )

    def advanced(self) -> State:
        return {"cache": self.tensor, "next": self.next + self.time}
