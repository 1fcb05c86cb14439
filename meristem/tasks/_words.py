"""Words in a text and the tokens they are read at: cutting, joining, alignment by character offsets."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.labelled.joining import joined
from meristem.task import Sample
from meristem.tasks._reader import Reader, Text
from meristem.tokenizers.characters import is_chinese

Offsets = Sequence[tuple[int, int]]
Places = NDArray[np.int64]
Which = Literal["first", "last"]
JOINER = "\u200d"


def cut(text: str) -> list[tuple[int, int]]:
    """Where the words of a raw text stand.

    Letters and digits with their combining marks make a word together; a punctuation mark, symbol or ideograph is one
    by itself, an emoji joined of several likewise; white space and control characters are in none.
    """
    found: list[tuple[int, int]] = []
    kind, last = "space", ""
    for at, character in enumerate(text):
        before, kind = kind, _kind(character)
        joins = kind == "mark" or last == JOINER or kind == before == "letter"
        if kind != "space":
            if joins and before != "space":
                found[-1] = (found[-1][0], at + 1)
                kind = before if kind == "mark" else kind
            else:
                found.append((at, at + 1))
        last = character
    return found


def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace() or category in ("Cc", "Cs", "Zl", "Zp"):
        return "space"
    if category[0] == "M" or category == "Cf" or "\U0001f3fb" <= character <= "\U0001f3ff":  # skin tones
        return "mark"
    return "letter" if category[0] in "LN" and not is_chinese(character) else "alone"


def asked(given: Any, task: str) -> Sample:
    """What a person gives: a text, which is cut, or its words."""
    if isinstance(given, str):
        given = {"text": given}
    if given.get("words") is not None:
        words = tuple(map(str, given["words"]))
        text, offsets = joined(words)
        return Sample(given={"words": words, "text": text, "offsets": offsets})
    if not isinstance(given.get("text"), str):
        raise MeristemError(f'task {task}: give a text, or {{"text": "…"}}, or {{"words": ["…", …]}}')
    text, places = given["text"], cut(given["text"])
    return Sample(given={"words": tuple(text[a:b] for a, b in places), "text": text, "offsets": tuple(places)})


def aligned(reader: Reader, samples: Sequence[Sample], which: Which) -> list[tuple[Text, Places]]:
    """Each sample's text, and the token each of its words is read at, −1 for a word of which no token is left.

    A text in which two words share a token is encoded word by word instead, so that each can have its own answer.
    """
    made = [
        (text, places(text.offsets, sample.given["offsets"], which))
        for sample, text in zip(samples, reader.encode([str(one.given["text"]) for one in samples]), strict=True)
    ]
    shared = [number for number, (_, at) in enumerate(made) if len(set(kept := at[at >= 0].tolist())) < len(kept)]
    for number, text in zip(shared, _apart(reader, [samples[number] for number in shared]), strict=True):
        made[number] = text, places(text.offsets, samples[number].given["offsets"], which)
    return made


def places(offsets: NDArray[Any], words: Offsets, which: Which = "first") -> Places:
    """The token of each word: the first that begins in it, else one that reaches into it; or the last in it."""
    real = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    if not len(real) or not len(words):
        return np.full(len(words), -1, np.int64)
    starts, ends = offsets[real, 0], offsets[real, 1]
    first, stop = np.array(words, np.int64).reshape(-1, 2).T
    begun, reached = np.searchsorted(starts, first), np.searchsorted(ends, first, side="right")
    behind = np.searchsorted(starts, stop)  # tokens before it begin before the word's end
    at = np.where(begun < behind, begun, reached) if which == "first" else behind - 1
    there = (reached < behind) & (stop > first)
    return np.where(there, real[np.where(there, at, 0)], -1)


def _apart(reader: Reader, samples: Sequence[Sample]) -> list[Text]:
    """Texts whose words were encoded one by one, each with what stands between it and the word before."""
    bounds = []
    for sample in samples:
        text, ends = str(sample.given["text"]), [stop for _, stop in sample.given["offsets"]]
        bounds.append([0, *ends, *([len(text)] if ends[-1] < len(text) else [])])
    pieces = [str(one.given["text"])[a:b] for one, at in zip(samples, bounds, strict=True) for a, b in pairwise(at)]
    distinct = list(dict.fromkeys(pieces))
    encoded, following = dict(zip(distinct, reader.encode(distinct), strict=True)), iter(pieces)
    out = []
    for sample, at in zip(samples, bounds, strict=True):
        some = [(start, encoded[next(following)]) for start in at[:-1]]
        ids = np.concatenate([piece.ids for _, piece in some])
        offsets = np.concatenate([piece.offsets + start for start, piece in some])
        out.append(Text(ids=ids, offsets=offsets, text=str(sample.given["text"])))
    return out
