"""Replaced-token detection with a discriminator (ELECTRA, Clark et al. 2020): which tokens look as if they were not
the original ones, with a probability for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.framed import Frame, states_at
from meristem.generation.token_scores import length_batches
from meristem.generation.way import DETECTION, detects, verbs_of
from meristem.tables import Tabular
from meristem.tokenizers.tokenizer import Encoding, Tokenizer

TOKENS = 4096
"""Read at once, padding counted."""


@dataclass(frozen=True, kw_only=True)
class DetectedToken(Tabular):
    """One token of a text, and how likely it is to have been replaced."""

    text: str
    """The token as a person reads it; `##` marks one that goes on with a word."""
    start: int
    end: int
    """Its characters in the text: text[start:end]."""
    probability: float
    """That another token stood here."""


@dataclass(frozen=True)
class _Window:
    """A stretch of a text, and the tokens of it that are judged in it."""

    text: int
    start: int
    stop: int
    first: int
    last: int


def detect(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[DetectedToken]]:
    """Every token of each text with the probability that it was replaced."""
    return detect_encoded(model, tokenizer, tokenizer.encode_many(texts))


@torch.inference_mode()
def detect_encoded(model: Model, tokenizer: Tokenizer, texts: Sequence[Encoding]) -> list[list[DetectedToken]]:
    """The same for texts that are already tokens; a long text is read in windows that overlap by half."""
    require_detection(model)
    frame = Frame.of(model, tokenizer)
    windows = [one for number, text in enumerate(texts) for one in _windows(number, len(text.ids), frame.room)]
    found: list[NDArray[np.float64]] = [np.zeros(len(text.ids)) for text in texts]
    for batch in length_batches([one.stop - one.start for one in windows], TOKENS):
        some = [windows[place] for place in batch]
        rows = [frame.row(texts[one.text].ids[one.start : one.stop]) for one in some]
        sizes = [one.last - one.first for one in some]
        places = torch.cat([torch.arange(one.first, one.last) - one.start + len(frame.before) for one in some])
        owners = torch.repeat_interleave(torch.arange(len(some)), torch.tensor(sizes))
        logits = model.heads[DETECTION](states_at(model, rows, places, owners))
        for one, part in zip(some, torch.split(logits.double().sigmoid().cpu(), sizes), strict=True):
            found[one.text][one.first : one.last] = part.numpy()
    return [_tokens(tokenizer, text, some) for text, some in zip(texts, found, strict=True)]


def require_detection(model: Model) -> None:
    """Refuse a model without a discriminator."""
    if not detects(model):
        raise MeristemError(
            "detect needs a model that was trained to tell replaced tokens (objective=rtd, as electra-mini); this one "
            f"can {' and '.join(verbs_of(model)) or 'not'}"
        )


def _windows(text: int, size: int, room: int) -> Iterator[_Window]:
    """Each token is judged in the window in which it stands farthest from an edge."""
    stride, first = room - room // 2, 0
    for start in range(0, max(1, size - room + stride), stride):
        stop = min(start + room, size)
        last = size if stop == size else start + stride + (room - stride) // 2
        if last > first:
            yield _Window(text, start, stop, first, last)
        first = last
        if stop == size:
            return


def _tokens(tokenizer: Tokenizer, text: Encoding, probabilities: NDArray[np.float64]) -> list[DetectedToken]:
    pieces = tokenizer.pieces(text.ids)
    return [
        DetectedToken(text=piece, start=start, end=end, probability=float(probability))
        for piece, (start, end), probability in zip(pieces, text.offsets.tolist(), probabilities, strict=True)
    ]
