"""Masks in a text, each with its likeliest tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from meristem.batch import Model
from meristem.generation.framed import Frame, mask_of, states_at
from meristem.generation.way import require
from meristem.settings import MeristemError
from meristem.tokenizers.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token that may stand at a mask."""

    token: str
    probability: float
    text: str
    """The whole text with it, other masks left as they are."""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """One mask and what may stand there, the likeliest first."""

    mask: int
    """Which mask of the text, counted from 0."""
    candidates: tuple[Candidate, ...]


@torch.inference_mode()
def fill(model: Model, tokenizer: Tokenizer, text: str, *, top: int = 5) -> list[Filled]:
    """The likeliest tokens of each mask, ranked while the other masks stay hidden; special tokens are left out."""
    require(model, "masked", "fill")
    if top < 1:
        raise MeristemError(f"top: {top} candidates cannot be shown, at least 1 can")
    encoding = tokenizer.encode(text, special=True)
    places = np.flatnonzero(encoding.ids == mask_of(tokenizer)).tolist()
    if not places:
        raise MeristemError('there is no mask in the text: write [MASK] where a word is missing, as in '
                            '"The capital of France is [MASK]."')
    probabilities = _probabilities(model, tokenizer, encoding, places)[:, : tokenizer.size]
    ordinary = probabilities.masked_fill(torch.from_numpy(tokenizer.specials), -1.0)
    best = ordinary.topk(min(top, int((~tokenizer.specials).sum())))
    return [
        Filled(mask=number, candidates=tuple(
            Candidate(token=tokenizer.token(token), probability=chance,
                      text=_with(tokenizer, text, encoding, place, token))
            for token, chance in zip(best.indices[number].tolist(), best.values[number].tolist(), strict=True)))
        for number, place in enumerate(places)
    ]


def _probabilities(model: Model, tokenizer: Tokenizer, encoding: Encoding, places: Iterable[int]) -> torch.Tensor:
    """[masks, V]; a text longer than the model is read in a window around each mask."""
    frame, size = Frame.of(model, tokenizer), len(encoding.ids)
    out = []
    for place in places:
        start, stop = frame.window(size, place)
        at = torch.tensor([place - start + len(frame.before)])
        states = states_at(model, [frame.row(encoding.ids[start:stop])], at, torch.zeros(1, dtype=torch.long))
        out.append(model.heads["mlm"](states).float().softmax(-1).cpu())
    return torch.cat(out)


def _with(tokenizer: Tokenizer, text: str, encoding: Encoding, place: int, token: int) -> str:
    """The text with a token written at a mask, joined to its left neighbour as the tokenizer writes the two."""
    stream = tokenizer.stream(skip_special=False)
    if place:
        stream.push(int(encoding.ids[place - 1]))
    left = int(encoding.offsets[place - 1, 1]) if place else 0
    return text[:left] + stream.push(token) + stream.finish() + text[int(encoding.offsets[place, 1]) :]
