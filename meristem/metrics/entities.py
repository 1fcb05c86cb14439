"""Tags: entities as seqeval counts them, in its default (conlleval's) and its strict IOB2 mode, and words got right."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.metrics.bootstrap import totals
from meristem.task import Indices, Metrics

Tags = Sequence[Sequence[str]]
Entity = tuple[str, int, int]
_ENTITY = re.compile(r"[BI]-.+", re.DOTALL)


def are_entities(tags: Tags) -> bool:
    """Whether all tags are O, B-TYPE or I-TYPE and some begin an entity; anything else is plain tags (POS)."""
    kinds = {tag for row in tags for tag in row} - {"O"}
    return bool(kinds) and all(_ENTITY.fullmatch(tag) for tag in kinds)


def score(golds: Tags, said: Tags, *, entities: bool | None = None) -> Metrics:
    """Precision, recall and F1 of entities, F1 strictly counted and of each type, accuracy; for plain tags only that.

    Which of both is told from the golds unless `entities` says so.
    """
    return resampled(golds, said, entities=entities)(np.arange(len(golds)))


def resampled(golds: Tags, said: Tags, *, entities: bool | None = None) -> Callable[[Indices], Metrics]:
    """The same numbers on a resampled set, from what each sentence adds to the counts."""
    for number, (gold, answer) in enumerate(zip(golds, said, strict=True)):
        if len(gold) != len(answer):
            raise MeristemError(f"sentence {number}: {len(answer)} tags were said of its {len(gold)} words")
    if not (are_entities(golds) if entities is None else entities):
        return _words(golds, said)
    counts, types = _counts(golds, said)
    accuracy = _words(golds, said)

    def measure(at: Indices) -> Metrics:
        sums = totals(counts, at).reshape(2, len(types), 3)  # mode, type, (right, said, gold)
        precision, recall, f1 = _ratios(sums[0].sum(0))
        found = {"precision": precision, "recall": recall, "f1": f1, "f1_strict": _ratios(sums[1].sum(0))[2]}
        each = {f"f1.{kind}": _ratios(sums[0, number])[2] for number, kind in enumerate(types)}
        return found | accuracy(at) | each

    return measure


def support(golds: Tags) -> dict[str, float]:
    """Sentences that hold an entity at all, and one of each type: those of one sentence are right or wrong together."""
    kinds = [{kind for kind, _, _ in found_entities(gold)} for gold in golds]
    some = float(sum(map(bool, kinds)))
    each = Counter(kind for one in kinds for kind in one)
    overall = dict.fromkeys(("f1", "f1_strict", "precision", "recall"), some)
    return overall | {f"f1.{kind}": float(number) for kind, number in each.items()}


def found_entities(tags: Sequence[str]) -> set[Entity]:
    """(type, first word, last word) of each entity, however it begins."""
    try:
        from seqeval.metrics.sequence_labeling import get_entities
    except ImportError:
        raise _missing() from None
    return set(get_entities(list(tags)))


def both_ways(tags: Sequence[str]) -> tuple[set[Entity], set[Entity]]:
    """The entities, and those that count strictly: one that no B- begins is none."""
    plainly = found_entities(tags)
    return plainly, plainly if _well_formed(tags) else _strictly(tags)


def _strictly(tags: Sequence[str]) -> set[Entity]:
    try:
        from seqeval.scheme import IOB2, Tokens
    except ImportError:
        raise _missing() from None
    return {(one.tag, one.start, one.end - 1) for one in Tokens(list(tags), IOB2).entities}


def _missing() -> MeristemError:
    return MeristemError('counting entities needs seqeval: pip install "meristem[metrics]"')


def _well_formed(tags: Sequence[str]) -> bool:
    """Whether both modes see the same: every I- goes on with what stands before it."""
    before = ("O", *tags)
    return all(tag[:2] != "I-" or last[1:] == tag[1:] for last, tag in zip(before, tags, strict=False))


def _words(golds: Tags, said: Tags) -> Callable[[Indices], Metrics]:
    """Words with the right tag among all words."""
    pairs = zip(golds, said, strict=True)
    each = np.array([(sum(map(str.__eq__, gold, answer)), len(gold)) for gold, answer in pairs], np.float64)

    def measure(at: Indices) -> Metrics:
        right, words = totals(each.reshape(-1, 2), at)
        return {"accuracy": float(right / words) if words else 0.0}

    return measure


def baselines(
    train: Sequence[tuple[Sequence[str], Sequence[str]]],
    samples: Sequence[tuple[Sequence[str], Sequence[str]]],
    *,
    entities: bool | None = None,
) -> dict[str, Metrics]:
    """What (words, tags) of the training data reach by counting: the commonest tag, and that of each word by itself."""
    tags, by_word = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for words, golds in train:
        tags.update(golds)
        for word, tag in zip(words, golds, strict=True):
            by_word[word][tag] += 1
    often = tags.most_common(1)[0][0]
    of_word = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
    right = [golds for _, golds in samples]
    always = [[often] * len(golds) for golds in right]
    known = [[of_word.get(word, often) for word in words] for words, _ in samples]
    return {
        f"always {often} (the commonest)": score(right, always, entities=entities),
        "each word's commonest tag": score(right, known, entities=entities),
    }


def _counts(golds: Tags, said: Tags) -> tuple[NDArray[np.float64], list[str]]:
    """[sentences, modes · types · 3] how many entities of a type are right, were said, are there."""
    sides = [(both_ways(gold), both_ways(answer)) for gold, answer in zip(golds, said, strict=True)]
    rows = [list(zip(gold, answer, strict=True)) for gold, answer in sides]
    types = sorted({kind for row in rows for both in row for some in both for kind, _, _ in some})
    place = {kind: number for number, kind in enumerate(types)}
    counts = np.zeros((len(rows), 2, len(types), 3))
    for number, row in enumerate(rows):
        for mode, (gold_ones, said_ones) in enumerate(row):
            for column, some in enumerate((gold_ones & said_ones, said_ones, gold_ones)):
                for kind, _, _ in some:
                    counts[number, mode, place[kind], column] += 1
    return counts.reshape(len(rows), -1), types


def _ratios(sums: NDArray[np.float64]) -> tuple[float, float, float]:
    """Precision, recall and F1 of (right, said, gold); 0 where there is nothing to divide by."""
    right, told, there = map(float, sums)
    precision, recall = right / told if told else 0.0, right / there if there else 0.0
    return precision, recall, 2 * precision * recall / ((precision + recall) or 1.0)
