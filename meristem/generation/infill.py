"""Gap filling with a denoising encoder-decoder: the next-token distribution of its decoder at the gap.

BART (masks) writes the whole text anew: its decoder has written what stands before the gap, and the token it would
write next is the candidate. T5 (sentinels) writes each gap behind its sentinel: the candidate is the first token there.
Earlier gaps of a text are taken as filled with their likeliest token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.framed import Frame
from meristem.generation.given import Given, start_of, together
from meristem.generation.token_scores import length_batches
from meristem.generation.way import vocabulary_head
from meristem.store.rows import ended
from meristem.store.store import Ints
from meristem.tokenizers.tokenizer import Tokenizer

TOKENS = 4096
"""Read at once, padding counted."""


class InfillingText:
    """One text with gaps while they are filled, from left to right."""

    def __init__(self, model: Model, tokenizer: Tokenizer, ids: Ints, places: Sequence[int]) -> None:
        self._tokenizer, self._places = tokenizer, list(places)
        self._ids, self._best = ids.astype(np.int64), list[int]()
        self._begin, self._length = start_of(model, tokenizer), model.backbone.length
        self._frame = Frame.of(model, tokenizer)
        self._sentinels = tokenizer.sentinels if "sentinels" in model.source_kinds else ()
        if self._sentinels and len(places) > len(self._sentinels):
            raise MeristemError(f"{len(places)} masks: this tokenizer has {len(self._sentinels)} sentinels; mask fewer")

    def start(self, gap: int) -> Given:
        """What encoder and decoder have read when the token of this gap is next."""
        place = self._places[gap]
        first, last = self._frame.window(len(self._ids), place)
        inside = [number for number, at in enumerate(self._places) if first <= at < last]
        source = self._ids[first:last].copy()
        if self._sentinels:
            source[[self._places[number] - first for number in inside]] = self._sentinels[: len(inside)]
            before = [number for number in inside if number < gap]
            told = [(self._sentinels[place], self._best[number]) for place, number in enumerate(before)]
            prompt = [*self._begin, *(token for pair in told for token in pair), self._sentinels[len(before)]]
        else:
            written = self._ids[first:place].copy()
            for number in (one for one in inside if one < gap):
                written[self._places[number] - first] = self._best[number]
            prompt = [*self._begin, *written.tolist()]
        read = ended(source, self._tokenizer, self._length)
        return Given(prompt=prompt[: self._length], inputs={"source": torch.from_numpy(read)})

    def fill(self, token: int) -> None:
        """The likeliest token of the gap that was asked for last."""
        self._best.append(token)

    def __len__(self) -> int:
        return len(self._places)


@torch.inference_mode()
def infill_gaps(model: Model, tokenizer: Tokenizer, texts: Sequence[tuple[Ints, Sequence[int]]]) -> list[Tensor]:
    """Per text [gaps, V] probabilities; the first gaps of all texts are read together, then the second ones, …"""
    every = [InfillingText(model, tokenizer, ids, places) for ids, places in texts]
    ordinary = torch.from_numpy(np.flatnonzero(~tokenizer.specials))
    out: list[list[Tensor]] = [[] for _ in every]
    for gap in range(max(map(len, every), default=0)):
        numbers = [number for number, one in enumerate(every) if gap < len(one)]
        starts = [every[number].start(gap) for number in numbers]
        for batch in length_batches([start.size for start in starts], TOKENS):
            found = _next_tokens(model, [starts[place] for place in batch])
            for place, probabilities in zip(batch, found, strict=True):
                out[numbers[place]].append(probabilities)
                every[numbers[place]].fill(int(ordinary[probabilities[ordinary].argmax()]))
    return [torch.stack(some) for some in out]


def _next_tokens(model: Model, starts: Sequence[Given]) -> Tensor:
    """[B, V] probabilities of the token after each start."""
    tokens, sizes, inputs = together(starts, model.device)
    hidden = model.backbone(tokens=tokens, **inputs)
    at = torch.arange(len(starts)) * tokens.shape[1] + sizes - 1
    return vocabulary_head(model, "source")(hidden.at(at.to(model.device))).float().softmax(-1).cpu()  # type: ignore[no-any-return]  # nn.Module.__call__
