"""Entity-level F1 for IOB tags, by seqeval (default as conlleval, and strict IOB2), and tag accuracy."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.interfaces.task_evaluation import Indices, Metrics
from meristem.metrics.bootstrap import sum_rows

Tags = Sequence[Sequence[str]]
Entity = tuple[str, int, int]
_ENTITY = re.compile(r"[BI]-.+", re.DOTALL)


def is_iob(tags: Tags) -> bool:
    """Whether all tags are O, B-TYPE or I-TYPE and some are entities; anything else is plain tags (POS)."""
    tag_set = {tag for row in tags for tag in row} - {"O"}
    return bool(tag_set) and all(_ENTITY.fullmatch(tag) for tag in tag_set)


def score(golds: Tags, predictions: Tags, *, entities: bool | None = None) -> Metrics:
    """Precision, recall and F1 of entities, strict F1, F1 of each type, and accuracy; for plain tags only accuracy.

    Which of the two is inferred from the golds unless `entities` is set.
    """
    return resampler(golds, predictions, entities=entities)(np.arange(len(golds)))


def resampler(golds: Tags, predictions: Tags, *, entities: bool | None = None) -> Callable[[Indices], Metrics]:
    """The same metrics as a function of resampled indices, from per-sentence counts."""
    for index, (gold, prediction) in enumerate(zip(golds, predictions, strict=True)):
        if len(gold) != len(prediction):
            raise MeristemError(f"sentence {index}: {len(prediction)} predicted tags for {len(gold)} words")
    if not (is_iob(golds) if entities is None else entities):
        return _accuracy_resampler(golds, predictions)
    counts, types = _entity_counts(golds, predictions)
    accuracy = _accuracy_resampler(golds, predictions)

    def measure(indices: Indices) -> Metrics:
        sums = sum_rows(counts, indices).reshape(2, len(types), 3)  # mode, type, (correct, predicted, gold)
        precision, recall, f1 = _precision_recall_f1(sums[0].sum(0))
        strict_f1 = _precision_recall_f1(sums[1].sum(0))[2]
        metrics = {"precision": precision, "recall": recall, "f1": f1, "f1_strict": strict_f1}
        per_type = {f"f1.{name}": _precision_recall_f1(sums[0, index])[2] for index, name in enumerate(types)}
        return metrics | accuracy(indices) | per_type

    return measure


def support(golds: Tags) -> dict[str, float]:
    """Sentences with any entity, and with one of each type: entities of one sentence are not independent."""
    sentence_types = [{entity_type for entity_type, _, _ in extract_entities(gold)} for gold in golds]
    with_entities = float(sum(map(bool, sentence_types)))
    per_type = Counter(entity_type for types in sentence_types for entity_type in types)
    overall = dict.fromkeys(("f1", "f1_strict", "precision", "recall"), with_entities)
    return overall | {f"f1.{entity_type}": float(count) for entity_type, count in per_type.items()}


def extract_entities(tags: Sequence[str]) -> set[Entity]:
    """(type, first word, last word) of each entity, whether it begins with B- or I-."""
    try:
        from seqeval.metrics.sequence_labeling import get_entities
    except ImportError:
        raise _missing_seqeval() from None
    return set(get_entities(list(tags)))


def lenient_and_strict(tags: Sequence[str]) -> tuple[set[Entity], set[Entity]]:
    """All entities, and those of strict mode, which ignores entities that do not begin with B-."""
    entities = extract_entities(tags)
    return entities, entities if _well_formed(tags) else _strict_entities(tags)


def _strict_entities(tags: Sequence[str]) -> set[Entity]:
    try:
        from seqeval.scheme import IOB2, Tokens
    except ImportError:
        raise _missing_seqeval() from None
    return {(entity.tag, entity.start, entity.end - 1) for entity in Tokens(list(tags), IOB2).entities}


def _missing_seqeval() -> MeristemError:
    return MeristemError('entity F1 needs seqeval: pip install "meristem-lm[metrics]"')


def _well_formed(tags: Sequence[str]) -> bool:
    """Whether both modes agree: every I- continues the entity before it."""
    previous_tags = ("O", *tags)
    return all(tag[:2] != "I-" or last[1:] == tag[1:] for last, tag in zip(previous_tags, tags, strict=False))


def _accuracy_resampler(golds: Tags, predictions: Tags) -> Callable[[Indices], Metrics]:
    """The share of words with the right tag."""
    pairs = zip(golds, predictions, strict=True)
    counts = np.array([(sum(map(str.__eq__, gold, prediction)), len(gold)) for gold, prediction in pairs], np.float64)

    def measure(indices: Indices) -> Metrics:
        correct, total = sum_rows(counts.reshape(-1, 2), indices)
        return {"accuracy": float(correct / total) if total else 0.0}

    return measure


def baselines(
    train: Sequence[tuple[Sequence[str], Sequence[str]]],
    samples: Sequence[tuple[Sequence[str], Sequence[str]]],
    *,
    entities: bool | None = None,
) -> dict[str, Metrics]:
    """Baselines from (words, tags) of the training data: the most common tag overall, and that of each word."""
    tags, by_word = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for words, golds in train:
        tags.update(golds)
        for word, tag in zip(words, golds, strict=True):
            by_word[word][tag] += 1
    most_common = tags.most_common(1)[0][0]
    tag_of_word = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
    gold_tags = [golds for _, golds in samples]
    constant = [[most_common] * len(golds) for golds in gold_tags]
    per_word = [[tag_of_word.get(word, most_common) for word in words] for words, _ in samples]
    return {
        f"always {most_common} (the commonest)": score(gold_tags, constant, entities=entities),
        "each word's commonest tag": score(gold_tags, per_word, entities=entities),
    }


def _entity_counts(golds: Tags, predictions: Tags) -> tuple[NDArray[np.float64], list[str]]:
    """[sentences, modes · types · 3] numbers of correct, predicted and gold entities of each type."""
    rows = [
        list(zip(lenient_and_strict(gold), lenient_and_strict(prediction), strict=True))
        for gold, prediction in zip(golds, predictions, strict=True)
    ]
    types = sorted({entity[0] for row in rows for mode in row for entities in mode for entity in entities})
    type_index = {entity_type: index for index, entity_type in enumerate(types)}
    counts = np.zeros((len(rows), 2, len(types), 3))
    for index, row in enumerate(rows):
        for mode, (gold_entities, predicted) in enumerate(row):
            for column, entity_set in enumerate((gold_entities & predicted, predicted, gold_entities)):
                for entity_type, _, _ in entity_set:
                    counts[index, mode, type_index[entity_type], column] += 1
    return counts.reshape(len(rows), -1), types


def _precision_recall_f1(sums: NDArray[np.float64]) -> tuple[float, float, float]:
    """Precision, recall and F1 from (correct, predicted, gold); 0 where the denominator is 0."""
    correct, predicted, actual = map(float, sums)
    precision, recall = correct / predicted if predicted else 0.0, correct / actual if actual else 0.0
    return precision, recall, 2 * precision * recall / ((precision + recall) or 1.0)
