"""Alignment of words and tokens by character offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meristem.inputs.encoded_input import TokenizedText
from meristem.inputs.template import InputTemplate
from meristem.interfaces.sample import Sample

Offsets = Sequence[tuple[int, int]]
Positions = NDArray[np.int64]
SubtokenPooling = Literal["first", "last"]


def align_words(
    template: InputTemplate, samples: Sequence[Sample], subtoken_pooling: SubtokenPooling
) -> list[tuple[TokenizedText, Positions]]:
    """Each sample's tokenized text, and the token position of each of its words; −1 for a word without tokens.

    A text in which two words share a token is tokenized word by word, so that each can have its own prediction.
    """
    aligned = [
        (text, word_token_positions(text.offsets, sample.inputs["offsets"], subtoken_pooling))
        for sample, text in zip(
            samples, template.tokenize([str(sample.inputs["text"]) for sample in samples]), strict=True
        )
    ]
    shared = [
        number
        for number, (_, at) in enumerate(aligned)
        if len(set(token_positions := at[at >= 0].tolist())) < len(token_positions)
    ]
    for number, text in zip(
        shared, _tokenize_word_by_word(template, [samples[number] for number in shared]), strict=True
    ):
        aligned[number] = text, word_token_positions(text.offsets, samples[number].inputs["offsets"], subtoken_pooling)
    return aligned


def word_token_positions(
    offsets: NDArray[Any], word_offsets: Offsets, subtoken_pooling: SubtokenPooling = "first"
) -> Positions:
    """The token of each word: the first that starts in it, else one that overlaps it; or the last one. −1 for none."""
    real = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    if not len(real) or not len(word_offsets):
        return np.full(len(word_offsets), -1, np.int64)
    starts, ends = offsets[real, 0], offsets[real, 1]
    first, stop = np.array(word_offsets, np.int64).reshape(-1, 2).T
    begun, reached = np.searchsorted(starts, first), np.searchsorted(ends, first, side="right")
    behind = np.searchsorted(starts, stop)  # tokens before this index start before the word's end
    at = np.where(begun < behind, begun, reached) if subtoken_pooling == "first" else behind - 1
    there = (reached < behind) & (stop > first)
    return np.where(there, real[np.where(there, at, 0)], -1)


def _tokenize_word_by_word(template: InputTemplate, samples: Sequence[Sample]) -> list[TokenizedText]:
    """Texts tokenized word by word, each word with the characters between it and the previous one."""
    bounds = []
    for sample in samples:
        text, ends = str(sample.inputs["text"]), [stop for _, stop in sample.inputs["offsets"]]
        bounds.append([0, *ends, *([len(text)] if ends[-1] < len(text) else [])])
    pieces = [
        str(sample.inputs["text"])[a:b] for sample, at in zip(samples, bounds, strict=True) for a, b in pairwise(at)
    ]
    distinct = list(dict.fromkeys(pieces))
    encoded, following = dict(zip(distinct, template.tokenize(distinct), strict=True)), iter(pieces)
    out = []
    for sample, at in zip(samples, bounds, strict=True):
        some = [(start, encoded[next(following)]) for start in at[:-1]]
        ids = np.concatenate([piece.ids for _, piece in some])
        offsets = np.concatenate([piece.offsets + start for start, piece in some])
        out.append(TokenizedText(ids=ids, offsets=offsets, text=str(sample.inputs["text"])))
    return out
