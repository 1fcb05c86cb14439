"""Incremental decoding of an encoder-decoder: the source is read once, then one token per row passes the decoder.

Without a source the decoder is read alone, as a causal language model.
"""

# B batch, S slots in sight or places of the source, D width, H heads, G key-value heads, C channels, N distances

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.batch import State
from meristem.blocks.decoder import Decoder, DecoderLayer, seen_source
from meristem.blocks.entrance import Entrance
from meristem.blocks.joining import joined
from meristem.blocks.steps import Place, Step, flat_linear, flat_norm

Encode = Callable[..., tuple[Tensor, Tensor | None]]
"""Whatever an encoder reads, by name → its states [B, S, D], and which of them exist."""


class Decoding:
    """Keys and values of the source are kept beside those of the tokens written.

    Dropout is left out, and weights must not change.
    """

    def __init__(self, length: int, encode: Encode, words: nn.Embedding, entrance: Entrance, decoder: Decoder) -> None:
        self.length: int | None = length
        self._encode, self._words, self._entrance, self._decoder = encode, words, entrance, decoder
        self._layers = [_Step(layer, decoder.window(number)) for number, layer in enumerate(decoder.each())]
        self._final = flat_norm(decoder.final_norm)
        self._line_HN: Tensor | None = None
        if decoder.relative is not None:  # the farthest first: what a query sees is then the end of the line
            backwards = torch.arange(1 - length, 1, device=words.weight.device)
            self._line_HN = decoder.relative.by_distance(backwards).detach().contiguous()

    def begin(self, rows: int, slots: int, **inputs: Tensor) -> State:
        """Read the source, and empty slots for what will be written from it; without inputs there is no source."""
        if not inputs:
            words = self._words.weight
            start = torch.zeros(rows, dtype=torch.long, device=words.device)
            return {"cache": self._decoder.cache(rows, slots, words), "next": start}
        source_BSD, present = self._encode(**inputs)
        state = {
            "cache": self._decoder.cache(rows, slots, source_BSD),
            "cross": self._decoder.remember(source_BSD),
            "next": torch.zeros(rows, dtype=torch.long, device=source_BSD.device),
        }
        return state if present is None else {**state, "present": present}

    def read(self, tokens_BT: Tensor, sizes_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Prompts from position 0; what padding wrote is overwritten before it is ever seen."""
        hidden = self._decoder(
            self._entrance(self._words(tokens_BT)),
            state.get("cross"),
            source_present=state.get("present"),
            cache=state["cache"],
        )
        last = hidden.last[torch.arange(len(sizes_B), device=sizes_B.device), sizes_B - 1]
        return last, {**state, "next": sizes_B}

    def step(self, tokens_B: Tensor, state: State, uniform: int | None) -> tuple[Tensor, State]:
        """The states [B, D] of new tokens; `uniform` is the position of all of them where they have the same."""
        at_B, slots, cross = state["next"], state["cache"], state.get("cross")
        place = Place(at_B, uniform, slots.dtype)
        if self._line_HN is not None:
            place = _Biased(at_B, uniform, slots.dtype, self._line_HN)
        mask = seen_source(state.get("present"), slots.dtype).mask
        x = self._entrance.place(F.embedding(tokens_B, self._words.weight), at_B)
        for number, layer in enumerate(self._layers):
            x = layer.through(x, slots[:, number], place, None if cross is None else cross[:, number], mask)
        return self._final(x), {**state, "next": at_B + 1}

    def grow(self, state: State, slots: int) -> State:
        """More slots, empty."""
        more = slots - state["cache"].shape[4]
        return {**state, "cache": F.pad(state["cache"], (0, 0, 0, more))}

    def join(self, one: State, other: State) -> State:
        """Rows under rows; where a source is shorter than others, the rest of it is hidden."""
        return joined(one, other, along={"cross": 4, "present": 1})


class _Step(Step):
    """One decoder layer."""

    def __init__(self, layer: DecoderLayer, window: int | None) -> None:
        super().__init__(layer, window)
        self._cross, self._cross_norm = layer.cross, flat_norm(layer.cross_norm)
        self._query, self._answer = flat_linear(layer.cross.query), flat_linear(layer.cross.output)

    def through(
        self, x_BD: Tensor, slots_B2GSC: Tensor, place: Place, source_B2GSC: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """[B, D] → [B, D]; without a source a decoder layer is a plain causal one."""
        if source_B2GSC is None:
            return self(x_BD, slots_B2GSC, place)
        first, last = self.norms
        if self.pre:
            x_BD = x_BD + self.attend(first(x_BD), slots_B2GSC, place)
            x_BD = x_BD + self._look(self._cross_norm(x_BD), source_B2GSC, mask)
            return x_BD + self.feed(last(x_BD))
        x_BD = first(x_BD + self.attend(x_BD, slots_B2GSC, place))
        x_BD = self._cross_norm(x_BD + self._look(x_BD, source_B2GSC, mask))
        return last(x_BD + self.feed(x_BD))

    def _look(self, x_BD: Tensor, source_B2GSC: Tensor, mask: Tensor | None) -> Tensor:
        c, rows = self._cross, len(x_BD)
        keys, values = source_B2GSC.unbind(1)
        mixed = F.scaled_dot_product_attention(
            self._query(x_BD).view(rows, c.heads, 1, c.channels),
            keys,
            values,
            attn_mask=mask,
            scale=c.scale,
            enable_gqa=c.groups != c.heads,
        )
        return self._answer(mixed.reshape(rows, -1))


class _Biased(Place):
    """A place from which nearer keys weigh otherwise than farther ones."""

    def __init__(self, at_B: Tensor, uniform: int | None, dtype: torch.dtype, line_HN: Tensor) -> None:
        super().__init__(at_B, uniform, dtype)
        self._line_HN = line_HN
        self._biased: dict[int | None, Tensor] = {}

    def sight(self, window: int | None) -> tuple[slice, Tensor | None]:
        """The slots in sight, and the bias on each [B or 1, H, 1, S]."""
        seen, mask = super().sight(window)
        if mask is None:
            return seen, self._line_HN[None, :, None, seen.start - seen.stop :]
        if window not in self._biased:
            distance_BS = (self.at_B[:, None] - torch.arange(self.stop, device=self.at_B.device)).clamp(min=0)
            bias_HBS = self._line_HN[:, self._line_HN.shape[1] - 1 - distance_BS]
            self._biased[window] = bias_HBS.transpose(0, 1)[:, :, None] + mask
        return seen, self._biased[window]
