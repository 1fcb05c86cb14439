"""Predicted tags: grouping into entities, confusion matrix, baselines, mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.interfaces.sample import Sample
from meristem.interfaces.task_evaluation import ConfusionMatrix, Metrics, Mistake
from meristem.metrics import entity_f1 as metrics

IGNORED_TAG = "_"
"""The tag of a word that is ignored in training and evaluation, as all but one word of a word-sense sample."""
WindowTags = tuple[NDArray[Any], NDArray[Any]]
"""For one window the tag ids of its words, and their probabilities."""
CONTEXT_CHARACTERS = 40
"""Characters of context on each side of a mistake."""


@dataclass(frozen=True, kw_only=True)
class TagPrediction:
    """A tag for each word of a sample, and its probability."""

    tags: tuple[str, ...]
    scores: tuple[float, ...]


def split_tag(tag: str) -> tuple[str, str]:
    """B-PER → B, PER; O has no type."""
    part, _, kind = tag.partition("-")
    return part, kind


def allowed_transitions(labels: Sequence[str]) -> NDArray[np.bool_]:
    """[tags + 1, tags]: whether a tag may follow another, and in the last row come first: I-X only continues X.

    A type without B-X tag may start with I-X.
    """
    follows = np.ones((len(labels) + 1, len(labels)), bool)
    for number, label in enumerate(labels):
        part, kind = split_tag(label)
        if part == "I" and f"B-{kind}" in labels:
            follows[:, number] = [before in (f"B-{kind}", f"I-{kind}") for before in labels] + [False]
    return follows


def entity_groups(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(type, first word, last word + 1) of each entity; I-X after anything but X starts a new one."""
    start, last = 0, "O"
    for at, tag in enumerate([*tags, "O"]):
        part, kind = split_tag(tag)
        if last != "O" and (part != "I" or kind != split_tag(last)[1]):
            yield split_tag(last)[1], start, at
            last = "O"
        if part != "O" and last == "O":
            start = at
        last = tag


def format_tags(prediction: TagPrediction, sample: Sample, *, entities: bool) -> list[dict[str, Any]]:
    """Entities grouped as in transformers' pipeline, with the mean score of their words; plain tags word by word."""
    text, offsets = str(sample.inputs["text"]), sample.inputs["offsets"]
    name = "entity_group" if entities else "entity"
    groups = (
        entity_groups(prediction.tags) if entities else ((tag, at, at + 1) for at, tag in enumerate(prediction.tags))
    )
    out = []
    for kind, first, behind in groups:
        start, end = int(offsets[first][0]), int(offsets[behind - 1][1])
        score = float(np.mean(prediction.scores[first:behind]))
        out.append({name: kind, "score": score, "word": text[start:end], "start": start, "end": end})
    return out


def drop_ignored(
    predictions: Sequence[Sequence[str]], golds: Sequence[Sequence[str]]
) -> tuple[list[list[str]], list[list[str]]]:
    """Golds and predictions without the words whose gold is ignored."""
    known_positions = [[at for at, tag in enumerate(gold) if tag != IGNORED_TAG] for gold in golds]
    known_golds = [[gold[at] for at in positions] for gold, positions in zip(golds, known_positions, strict=True)]
    return known_golds, [
        [answer[at] for at in positions] for answer, positions in zip(predictions, known_positions, strict=True)
    ]


def confusion(
    predictions: Sequence[Sequence[str]], golds: Sequence[Sequence[str]], *, entities: bool
) -> ConfusionMatrix:
    """Confusion of tags, word by word; of types for entities."""
    gold_tags, predicted_tags = (
        [_entity_type(tag) if entities else tag for row in rows for tag in row]
        for rows in drop_ignored(predictions, golds)
    )
    names = tuple(sorted({*gold_tags, *predicted_tags}, key=lambda name: (name != "O", name)))
    return ConfusionMatrix.from_labels(names, gold_tags, predicted_tags)


WordsAndTags = Sequence[tuple[Sequence[str], Sequence[str]]]


def baselines(train: WordsAndTags, samples: WordsAndTags, *, entities: bool) -> dict[str, Metrics]:
    """Baselines from tag counts, without the words whose gold is ignored."""
    known, golds = (
        [(words[0], tags[0]) for tags, words in (drop_ignored([words], [tags]) for words, tags in some)]
        for some in (train, samples)
    )
    return metrics.baselines(known, golds, entities=entities)


def mistakes(
    predictions: Sequence[TagPrediction], samples: Sequence[Sample], golds: Sequence[Sequence[str]]
) -> list[Mistake]:
    """Words with a wrong tag, each in its context, most confident first."""
    wrong_words = [
        Mistake(
            location=sample.location,
            input_text=_word_in_context(str(sample.inputs["text"]), *sample.inputs["offsets"][at]),
            gold=expected,
            prediction=predicted,
            confidence=score,
        )
        for answer, sample, gold in zip(predictions, samples, golds, strict=True)
        for at, (expected, predicted, score) in enumerate(zip(gold, answer.tags, answer.scores, strict=True))
        if expected not in (predicted, IGNORED_TAG)
    ]
    return sorted(wrong_words, key=lambda mistake: -mistake.confidence)


def _entity_type(tag: str) -> str:
    return split_tag(tag)[1] or tag


def _word_in_context(text: str, start: int, end: int) -> str:
    """The word in brackets, with the text around it."""
    before, behind = text[max(0, start - CONTEXT_CHARACTERS) : start], text[end : end + CONTEXT_CHARACTERS]
    ahead, after = "…" if start > CONTEXT_CHARACTERS else "", "…" if len(text) - end > CONTEXT_CHARACTERS else ""
    return f"{ahead}{before}[{text[start:end]}]{behind}{after}"
