"""One new token per row through a stack: what `Stack.forward` computes for T = 1, in as few operations as there can be.

A step of a small model is mostly overhead: here it has half of `Stack.forward`'s operations, no module calls and no
masks that are not needed. Tests hold the two equal for every kind of stack.
"""

# B batch, S slots in sight, D width, H heads, G key-value heads, C channels of one head

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.batch import Backbone, State
from meristem.blocks.attention import Attention
from meristem.blocks.decoder import DecoderLayer
from meristem.blocks.embedding import Embedding
from meristem.blocks.feed_forward import activate
from meristem.blocks.joining import joined
from meristem.blocks.layer import Layer
from meristem.blocks.stack import Stack

Map = Callable[[Tensor], Tensor]


class Steps:
    """The writer of a causal stack: prompts through the backbone, then one token per row through its weights.

    Dropout is left out, and weights must not change.
    """

    def __init__(self, backbone: Backbone, embedding: Embedding, stack: Stack) -> None:
        self.length: int | None = backbone.length
        self._backbone, self._stack = backbone, stack
        self._embedding, self._final = embedding, flat_norm(stack.final_norm)
        s = stack.settings
        windows = [s.window if (number + 1) % s.window_every == 0 else None for number in range(s.layers)]
        self._layers = [Step(cast(Layer, layer), window) for layer, window in zip(stack.layers, windows, strict=True)]

    def begin(self, rows: int, slots: int, **inputs: Tensor) -> State:
        """Empty slots."""
        return self._stack.cache(rows, slots, self._embedding.tokens.weight)

    def read(self, tokens_BT: Tensor, sizes_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Prompts from position 0; what padding wrote is overwritten before it is ever seen."""
        hidden = self._backbone(tokens=tokens_BT, causal=True, state=state)
        last = hidden.last[torch.arange(len(sizes_B), device=sizes_B.device), sizes_B - 1]
        return last, {"cache": hidden.state["cache"], "next": sizes_B}

    def grow(self, state: State, slots: int) -> State:
        """More slots, empty."""
        more = slots - state["cache"].shape[4]
        return {**state, "cache": F.pad(state["cache"], (0, 0, 0, more))}

    def join(self, one: State, other: State) -> State:
        """Rows under rows."""
        return joined(one, other)

    def step(self, tokens_B: Tensor, state: State, uniform: int | None) -> tuple[Tensor, State]:
        """The states [B, D] of new tokens; `uniform` is the position of all of them where they have the same."""
        at_B, slots = state["next"], state["cache"]
        place = Place(at_B, uniform, slots.dtype)
        x = self._embed(tokens_B, at_B)
        for number, layer in enumerate(self._layers):
            x = layer(x, slots[:, number], place)
        return self._final(x), {"cache": slots, "next": at_B + 1}

    def _embed(self, tokens_B: Tensor, at_B: Tensor) -> Tensor:
        e = self._embedding
        x = F.embedding(tokens_B, e.tokens.weight)
        if e.positions is not None:
            x = x + e.positions(at_B)
        return x if e.norm is None else e.norm(x)


class Place:
    """Where new keys and values go, and which slots a query sees from there."""

    def __init__(self, at_B: Tensor, uniform: int | None, dtype: torch.dtype) -> None:
        self.at_B, self.uniform, self._dtype = at_B, uniform, dtype
        self.stop = int(at_B.max()) + 1 if uniform is None else uniform + 1
        self._masks: dict[int | None, Tensor] = {}

    def write(self, slots_B2GSC: Tensor, new_B2GC: Tensor) -> None:
        """New keys and values into the slots of their positions."""
        if self.uniform is None:
            slots_B2GSC[torch.arange(len(new_B2GC), device=self.at_B.device), :, :, self.at_B] = new_B2GC
        else:
            slots_B2GSC[:, :, :, self.uniform] = new_B2GC

    def sight(self, window: int | None) -> tuple[slice, Tensor | None]:
        """The slots in sight, and a mask [B, 1, 1, S] over them where rows stand at different places."""
        if self.uniform is not None:
            return slice(0 if window is None else max(0, self.stop - window), self.stop), None
        if window not in self._masks:
            distance = self.at_B[:, None] - torch.arange(self.stop, device=self.at_B.device)
            hidden = (distance < 0) if window is None else (distance < 0) | (distance >= window)
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
            self._masks[window] = mask[:, None, None]
        return slice(0, self.stop), self._masks[window]


class Step:
    """One layer."""

    def __init__(self, layer: Layer | DecoderLayer, window: int | None) -> None:
        self.pre, self._window = layer.place == "pre", window
        self._attention = layer.attention
        self._project, self._output = flat_linear(layer.attention.project), flat_linear(layer.attention.output)
        self._widen, self._narrow = flat_linear(layer.feed_forward.widen), flat_linear(layer.feed_forward.narrow)
        self._activation = layer.feed_forward.activation
        self.norms = flat_norm(layer.attention_norm), flat_norm(layer.feed_forward_norm)

    def __call__(self, x_BD: Tensor, slots_B2GSC: Tensor, place: Place) -> Tensor:
        first, second = self.norms
        if self.pre:
            x_BD = x_BD + self.attend(first(x_BD), slots_B2GSC, place)
            return x_BD + self.feed(second(x_BD))
        x_BD = first(x_BD + self.attend(x_BD, slots_B2GSC, place))
        return second(x_BD + self.feed(x_BD))

    def feed(self, x_BD: Tensor) -> Tensor:
        """The position-wise half."""
        return self._narrow(activate(self._activation, self._widen(x_BD)))

    def attend(self, x_BD: Tensor, slots_B2GSC: Tensor, place: Place) -> Tensor:
        """New keys and values into their slots, and a look at all that are in sight."""
        a, rows = self._attention, len(x_BD)
        split = self._project(x_BD).view(rows, -1, a.channels)
        if a.rotary is not None:
            split = _turned(a, split, place.at_B)
        place.write(slots_B2GSC, split[:, a.heads :].view(rows, 2, a.groups, a.channels))
        seen, mask = place.sight(self._window)
        keys, values = slots_B2GSC[:, :, :, seen].unbind(1)
        mixed = F.scaled_dot_product_attention(
            split[:, : a.heads, None],
            keys,
            values,
            attn_mask=mask,
            scale=a.scale,
            enable_gqa=a.groups != a.heads,
        )
        return self._output(mixed.reshape(rows, -1))


def _turned(attention: Attention, split: Tensor, at_B: Tensor) -> Tensor:
    """Queries and keys turned to their positions, values as they are."""
    assert attention.rotary is not None
    both = attention.heads + attention.groups
    return torch.cat([attention.rotary(split[:, None, :both], at_B[:, None])[:, 0], split[:, both:]], 1)


def flat_linear(linear: nn.Linear) -> Map:
    """A linear layer as few rows read it fastest."""
    weight, bias = linear.weight.detach().t(), linear.bias
    if weight.is_cpu:
        weight = weight.contiguous()  # a copy that few rows read 1.1× (one) to 1.2× (sixteen) as fast
    return (lambda x: x @ weight) if bias is None else (lambda x: torch.addmm(bias, x, weight))


def flat_norm(norm: nn.Module) -> Map:
    """A norm without the calls of a module."""
    if not isinstance(norm, nn.LayerNorm):
        return norm
    shape, weight, bias, epsilon = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
