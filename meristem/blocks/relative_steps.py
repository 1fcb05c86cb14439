"""Writing without end: keys and values of the last tokens in a ring, and each token at its distance from the newest."""

# B rows, T new tokens, S slots of the ring, K keys in sight, D width, H heads, C channels of one head

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.batch import State
from meristem.blocks.joining import joined
from meristem.blocks.relative import waves
from meristem.blocks.relative_stack import RelativeLayer, RelativeStack


class RelativeSteps:
    """The writer of a causal relative stack: every token sees the `reach` last ones, itself among them.

    Position p lies in slot p % reach, so a text may grow for ever in flat memory and nothing is read twice. Dropout is
    left out, and weights must not change.
    """

    length: int | None = None

    def __init__(self, embed: Callable[[Tensor], Tensor], stack: RelativeStack, *, reach: int, chunk: int) -> None:
        """`reach` tokens are seen, and prompts are read `chunk` at a time."""
        self._embed, self._stack, self.reach, self._chunk = embed, stack, reach, min(chunk, reach)
        self._ahead = 0  # how far ahead a token may see
        self._distances_NHLC: list[Tensor] | None = None

    def begin(self, rows: int, slots: int, **inputs: Tensor) -> State:
        """Empty slots, no more than are ever seen."""
        s, like = self._stack.settings, next(self._stack.parameters())
        shape = (rows, s.layers, 2, s.heads, min(slots, self.reach), s.width // s.heads)
        return {"cache": like.new_zeros(shape), "next": torch.zeros(rows, dtype=torch.long, device=like.device)}

    def grow(self, state: State, slots: int) -> State:
        """More slots, empty, until the ring is whole."""
        more = max(0, min(slots, self.reach) - state["cache"].shape[4])
        return {**state, "cache": F.pad(state["cache"], (0, 0, 0, more))}

    def join(self, one: State, other: State) -> State:
        """Rows under rows."""
        return joined(one, other)

    def read(self, tokens_BT: Tensor, sizes_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Prompts, some tokens at a time; padding is never written."""
        rows = torch.arange(len(sizes_B), device=sizes_B.device)
        last_BD = next(self._stack.parameters()).new_zeros(len(sizes_B), self._stack.settings.width)
        for start in range(0, tokens_BT.shape[1], self._chunk):
            part = tokens_BT[:, start : start + self._chunk]
            ends_B = sizes_B - 1 - start
            new = NewTokens(self.reach, state["cache"], state["next"] + start, part.shape[1], ends_B)
            x = self._pass(self._embed(part), new)
            here = x[rows, ends_B.clamp(0, part.shape[1] - 1)]
            last_BD = torch.where(((ends_B >= 0) & (ends_B < part.shape[1]))[:, None], here, last_BD)
        return last_BD, {"cache": state["cache"], "next": state["next"] + sizes_B}

    def step(self, tokens_B: Tensor, state: State, uniform: int | None) -> tuple[Tensor, State]:
        """The states [B, D] of new tokens."""
        x = self._pass(self._embed(tokens_B[:, None]), NewToken(self.reach, state["cache"], state["next"], uniform))
        return x[:, 0], {"cache": state["cache"], "next": state["next"] + 1}

    def _pass(self, x: Tensor, place: NewPositions) -> Tensor:
        for number, (layer, distances) in enumerate(zip(self._stack.each(), self._distances(), strict=True)):
            x = layer.after(x, self._attend(layer, layer.ready(x), distances, place, number))
        return self._stack.final_norm(x)  # type: ignore[no-any-return]  # nn.Module.__call__

    def _attend(
        self, layer: RelativeLayer, ready: Tensor, distances_HLC: Tensor, place: NewPositions, number: int
    ) -> Tensor:
        a, (rows, time, _) = layer.attention, ready.shape
        q_BTHC = a.query(ready).view(rows, time, a.heads, a.channels)
        new_BT2HC = a.key_value(ready[:, : place.content]).view(rows, -1, 2, a.heads, a.channels)
        keys, values = place.push(number, new_BT2HC)
        far_BHTL = (q_BTHC + a.biases.distance).transpose(1, 2) @ distances_HLC.mT
        bias = far_BHTL.gather(3, (place.far + self._ahead).expand(rows, a.heads, -1, -1)) * a.channels**-0.5
        bias = bias.masked_fill(place.hidden, -torch.inf)
        mixed = F.scaled_dot_product_attention(
            (q_BTHC + a.biases.content).transpose(1, 2), keys, values, attn_mask=bias
        )
        return a.output(mixed.transpose(1, 2).reshape(rows, time, -1))  # type: ignore[no-any-return]  # nn.Module.__call__

    def _distances(self) -> list[Tensor]:
        """Per layer the keys [H, L, C] of the distances from the farthest ahead to the farthest back."""
        if self._distances_NHLC is None:
            s, like = self._stack.settings, next(self._stack.parameters())
            far = torch.arange(-self._ahead, self.reach, device=like.device)
            far = far if s.clamp is None else far.clamp(-s.clamp, s.clamp)
            made = waves(far[None], s.width, like.dtype)
            self._distances_NHLC = [layer.attention.distances(made)[:, 0] for layer in self._stack.each()]
        return self._distances_NHLC


class NewPositions(Protocol):
    """Positions that are computed now, and the keys they see."""

    content: int
    """How many of them, the first ones, become keys and values; the others are queries alone."""
    far: Tensor
    """[B, 1, T, K] how far back each key is; negative ahead."""
    hidden: Tensor
    """[B, 1, T, K] true where a key is out of sight."""

    def push(self, number: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values [B, H, K, C] of a layer, the new ones among them."""


@dataclass
class NewToken:
    """One new token per row: it is written first, over the one slot that is now too far back to be seen."""

    reach: int
    cache: Tensor
    at_B: Tensor
    uniform: int | None
    content: int = 1

    def __post_init__(self) -> None:
        self._filled = min(int(self.at_B.max()) if self.uniform is None else self.uniform, self.reach - 1) + 1
        self._slot_B = self.at_B % self.reach
        self._rows = torch.arange(len(self.at_B), device=self.at_B.device)
        far_BK = (self.at_B[:, None] - torch.arange(self._filled, device=self.at_B.device)) % self.reach
        self.far, self.hidden = far_BK[:, None, None], (far_BK > self.at_B[:, None])[:, None, None]

    def push(self, number: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values [B, H, K, C] of a layer, the new ones among them."""
        slots = self.cache[:, number]
        slots[self._rows, :, :, self._slot_B] = new_BT2HC[:, 0]
        keys, values = slots[:, :, :, : self._filled].unbind(1)
        return keys, values


@dataclass
class NewTokens:
    """Several new tokens per row: they stand behind the ring while they are read, and enter it after."""

    reach: int
    cache: Tensor
    at_B: Tensor
    time: int
    ends_B: Tensor
    """Where each row's last token is among the new ones; what comes after is padding."""

    def __post_init__(self) -> None:
        device = self.at_B.device
        here, slots = torch.arange(self.time, device=device), torch.arange(self.cache.shape[4], device=device)
        newest = self.at_B[:, None] - 1
        held_BS = newest - (newest - slots) % self.reach
        far_BTS = (self.at_B[:, None] + here)[:, :, None] - held_BS[:, None]
        gone = (held_BS < 0)[:, None] | (far_BTS >= self.reach)
        among = (here[:, None] - here).expand(len(far_BTS), -1, -1)
        self.far = torch.cat([far_BTS, among], 2)[:, None].clamp(0, self.reach - 1)
        self.hidden = torch.cat([gone, among < 0], 2)[:, None]
        self.content = self.time
        self._present = here <= self.ends_B[:, None]
        self._slot_BT = (self.at_B[:, None] + here) % self.reach
        self._rows = torch.arange(len(self.at_B), device=device)[:, None]

    def push(self, number: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values [B, H, K, C] of a layer, the new ones last."""
        slots = self.cache[:, number]
        keys, values = torch.cat([slots, new_BT2HC.permute(0, 2, 3, 1, 4)], 3).unbind(1)
        before = slots[self._rows, :, :, self._slot_BT]
        kept = self._present[:, :, None, None, None]
        slots[self._rows, :, :, self._slot_BT] = torch.where(kept, new_BT2HC, before)
        return keys, values
