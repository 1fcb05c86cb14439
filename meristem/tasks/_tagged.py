"""Tags as answers: entities grouped as people know them, what was taken for what, the surest mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.metrics import entities as metrics
from meristem.task import Confusion, Metrics, Mistake, Sample

UNTOLD = "_"
"""The tag of a word that is neither learned nor judged: all but the one of a word-sense sample."""
Found = tuple[NDArray[Any], NDArray[Any]]
"""For one window the numbers of its words' tags, and their probabilities."""
NEAR = 40
"""Characters that a mistake is shown with, on each side."""


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """A tag for each word of a sample, and how probable it is."""

    tags: tuple[str, ...]
    scores: tuple[float, ...]


def parted(tag: str) -> tuple[str, str]:
    """B-PER → B, PER; O has no type."""
    part, _, kind = tag.partition("-")
    return part, kind


def legal(labels: Sequence[str]) -> NDArray[np.bool_]:
    """[tags + 1, tags] which tag may follow which, and in the last row which may come first: I-X only goes on with X.

    A type whose beginning is never tagged may begin with I-X.
    """
    follows = np.ones((len(labels) + 1, len(labels)), bool)
    for number, label in enumerate(labels):
        part, kind = parted(label)
        if part == "I" and f"B-{kind}" in labels:
            follows[:, number] = [before in (f"B-{kind}", f"I-{kind}") for before in labels] + [False]
    return follows


def groups(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(type, first word, the one after the last) of each entity; I-X after anything but X begins one."""
    start, last = 0, "O"
    for at, tag in enumerate([*tags, "O"]):
        part, kind = parted(tag)
        if last != "O" and (part != "I" or kind != parted(last)[1]):
            yield parted(last)[1], start, at
            last = "O"
        if part != "O" and last == "O":
            start = at
        last = tag


def shown(answer: Tagged, sample: Sample, *, entities: bool) -> list[dict[str, Any]]:
    """Entities as transformers' pipeline groups them, the score being the mean over words; plain tags word by word."""
    text, offsets = str(sample.given["text"]), sample.given["offsets"]
    name = "entity_group" if entities else "entity"
    found = groups(answer.tags) if entities else ((tag, at, at + 1) for at, tag in enumerate(answer.tags))
    out = []
    for kind, first, behind in found:
        start, end = int(offsets[first][0]), int(offsets[behind - 1][1])
        score = float(np.mean(answer.scores[first:behind]))
        out.append({name: kind, "score": score, "word": text[start:end], "start": start, "end": end})
    return out


def judged(answers: Sequence[Sequence[str]], golds: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Golds and answers without the words whose gold is untold."""
    told = [[at for at, tag in enumerate(gold) if tag != UNTOLD] for gold in golds]
    right = [[gold[at] for at in kept] for gold, kept in zip(golds, told, strict=True)]
    return right, [[answer[at] for at in kept] for answer, kept in zip(answers, told, strict=True)]


def confusion(answers: Sequence[Sequence[str]], golds: Sequence[Sequence[str]], *, entities: bool) -> Confusion:
    """Word by word; of entities the types."""
    right, said = ([_type(tag) if entities else tag for row in rows for tag in row] for rows in judged(answers, golds))
    names = tuple(sorted({*right, *said}, key=lambda name: (name != "O", name)))
    return Confusion.of_labels(names, right, said)


Worded = Sequence[tuple[Sequence[str], Sequence[str]]]


def baselines(train: Worded, samples: Worded, *, entities: bool) -> dict[str, Metrics]:
    """What counting (words, tags) reaches, without the words whose gold is untold."""
    known, golds = (
        [(words[0], tags[0]) for tags, words in (judged([words], [tags]) for words, tags in some)]
        for some in (train, samples)
    )
    return metrics.baselines(known, golds, entities=entities)


def mistakes(answers: Sequence[Tagged], samples: Sequence[Sample], golds: Sequence[Sequence[str]]) -> list[Mistake]:
    """Words with a wrong tag, each in its surroundings, the surest first."""
    found = [
        Mistake(
            place=sample.place,
            given=_around(str(sample.given["text"]), *sample.given["offsets"][at]),
            gold=right,
            said=said,
            confidence=score,
        )
        for answer, sample, gold in zip(answers, samples, golds, strict=True)
        for at, (right, said, score) in enumerate(zip(gold, answer.tags, answer.scores, strict=True))
        if right not in (said, UNTOLD)
    ]
    return sorted(found, key=lambda one: -one.confidence)


def _type(tag: str) -> str:
    return parted(tag)[1] or tag


def _around(text: str, start: int, end: int) -> str:
    """The word in brackets, with what stands near it."""
    before, behind = text[max(0, start - NEAR) : start], text[end : end + NEAR]
    ahead, after = "…" if start > NEAR else "", "…" if len(text) - end > NEAR else ""
    return f"{ahead}{before}[{text[start:end]}]{behind}{after}"
