"""Masks in a text, each with its likeliest tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.bilm import Spelled, bilm_gaps
from meristem.generation.framed import Frame, mask_of, states_at
from meristem.generation.infill import infill_gaps
from meristem.generation.permutation import permutation_gaps
from meristem.generation.token_scores import length_batches
from meristem.generation.way import Way, vocabulary_head, way_for
from meristem.store.letters import written_words
from meristem.tables import Record, Tabular
from meristem.tokenizers.tokenizer import Encoding, Tokenizer

Mask = tuple[int, int]
"""The number of a text, and which of its masks."""

TOKENS = 4096
"""Read at once, padding counted."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token that may stand at a mask."""

    token: str
    probability: float
    text: str
    """The whole text with it, other masks left as they are."""


@dataclass(frozen=True, kw_only=True)
class Filled(Tabular):
    """One mask and what may stand there, the likeliest first."""

    mask: int
    """Which mask of the text, counted from 0."""
    candidates: tuple[Candidate, ...]

    def records(self) -> list[Record]:
        """A row for each candidate."""
        return [
            {"mask": self.mask, "token": one.token, "probability": one.probability, "text": one.text}
            for one in self.candidates
        ]


def fill(model: Model, tokenizer: Tokenizer, text: str, *, top: int = 5) -> list[Filled]:
    """The likeliest tokens of each mask, ranked while the other masks stay hidden; special tokens are left out."""
    way_for(model, "fill")  # what cannot fill is refused before a mask is looked for
    return fill_many(model, tokenizer, [masked(tokenizer, text)], top=top)[0]


@dataclass(frozen=True, kw_only=True)
class Masked:
    """A text with masks, cut into tokens."""

    text: str
    encoding: Encoding
    places: tuple[int, ...]
    """Where its masks stand among the tokens."""


def masked(tokenizer: Tokenizer, text: str) -> Masked:
    """A text in which something is missing; one that is whole is refused."""
    encoding = tokenizer.encode(text, special=True)
    places = np.flatnonzero(encoding.ids == mask_of(tokenizer)).tolist()
    if not places:
        raise MeristemError('there is no mask in the text: write [MASK] where a word is missing, as in '
                            '"The capital of France is [MASK]."')
    return Masked(text=text, encoding=encoding, places=tuple(places))


@torch.inference_mode()
def fill_many(model: Model, tokenizer: Tokenizer, texts: Sequence[Masked], *, top: int = 5) -> list[list[Filled]]:
    """The same for several texts, those of like lengths read together."""
    if top < 1:
        raise MeristemError(f"top: {top} candidates cannot be shown, at least 1 can")
    specials, most = torch.from_numpy(tokenizer.specials), min(top, int((~tokenizer.specials).sum()))
    out: list[list[Filled]] = [[Filled(mask=mask, candidates=()) for mask in range(len(one.places))] for one in texts]
    for some, probabilities in _probabilities(model, tokenizer, texts, way_for(model, "fill")):
        best = probabilities[:, : tokenizer.size].masked_fill(specials, -1.0).topk(most)
        found = zip(some, best.indices.tolist(), best.values.tolist(), strict=True)
        for (number, mask), tokens, chances in found:
            one = texts[number]
            out[number][mask] = Filled(mask=mask, candidates=tuple(
                Candidate(token=tokenizer.piece(token), probability=chance,
                          text=_with(tokenizer, one.text, one.encoding, one.places[mask], token))
                for token, chance in zip(tokens, chances, strict=True)))
    return out


def _probabilities(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Masked], way: Way
) -> Iterator[tuple[list[Mask], Tensor]]:
    """Some masks at a time, texts of like length together, with [masks, V] probabilities of tokens there."""
    masks = [(number, mask) for number, one in enumerate(texts) for mask in range(len(one.places))]
    if way == "source":  # a decoder fills from left to right
        every = infill_gaps(model, tokenizer, [(one.encoding.ids.astype(np.int64), one.places) for one in texts])
        for number, found in enumerate(every):
            yield [(number, mask) for mask in range(len(found))], found
        return
    for batch in length_batches([len(texts[number].encoding.ids) for number, _ in masks], TOKENS):
        some = [masks[place] for place in batch]
        gaps = [(texts[number], texts[number].places[mask]) for number, mask in some]
        yield some, _gaps(model, tokenizer, gaps, way)


def _gaps(model: Model, tokenizer: Tokenizer, gaps: Sequence[tuple[Masked, int]], way: Way) -> Tensor:
    """[gaps, V]; a text longer than the model is read in a window around each mask."""
    if way == "permutation":
        plain = [(one.encoding.ids.astype(np.int64), place) for one, place in gaps]
        return permutation_gaps(model, tokenizer, plain, mask_of(tokenizer))
    frame = Frame.of(model, tokenizer)
    if way == "bilm":
        return bilm_gaps(model, [_spelled(tokenizer, frame, *gap) for gap in gaps])
    rows: dict[tuple[int, int, int], int] = {}  # a window that holds several masks is read once
    read, places, owners = list[Tensor](), list[int](), list[int]()
    for one, place in gaps:
        start, stop = frame.window(len(one.encoding.ids), place)
        if (key := (id(one), start, stop)) not in rows:
            rows[key] = len(read)
            read.append(frame.row(one.encoding.ids[start:stop]))
        places.append(place - start + len(frame.before))
        owners.append(rows[key])
    states = states_at(model, read, torch.tensor(places), torch.tensor(owners), way)
    return vocabulary_head(model, way)(states).float().softmax(-1).cpu()  # type: ignore[no-any-return]  # nn.Module.__call__


def _spelled(tokenizer: Tokenizer, frame: Frame, text: Masked, place: int) -> tuple[Spelled, int]:
    """The words round a mask with their letters, between start and end; other masks are read as unknown words."""
    start, stop = frame.window(len(text.encoding.ids), place)
    words = written_words(text.text, text.encoding.offsets[start:stop])
    ids = text.encoding.ids[start:stop].astype(np.int64)
    return Spelled.of(tokenizer, ids, words), place - start + len(frame.before)


def _with(tokenizer: Tokenizer, text: str, encoding: Encoding, place: int, token: int) -> str:
    """The text with a token written at a mask, joined to its left neighbour as the tokenizer writes the two."""
    stream = tokenizer.stream(skip_special=False)
    if place:
        stream.push(int(encoding.ids[place - 1]))
    left = int(encoding.offsets[place - 1, 1]) if place else 0
    return text[:left] + stream.push(token) + stream.finish() + text[int(encoding.offsets[place, 1]) :]
