"""Entity F1, against seqeval in both of its modes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.metrics import entity_f1
from meristem.metrics.bootstrap import confidence_intervals

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-北-京", "I-北-京"]
pairs = st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), max_size=9)


@settings(max_examples=40, deadline=None)
@given(st.lists(pairs, min_size=1, max_size=6))
def test_both_modes_are_seqevals(rows: list[list[tuple[str, str]]]) -> None:
    from seqeval.metrics import f1_score, precision_score, recall_score
    from seqeval.scheme import IOB2

    golds, predictions = ([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    metrics = entity_f1.score(golds, predictions, entities=True)
    lone = {"zero_division": 0}
    assert metrics["precision"] == precision_score(golds, predictions, **lone)
    assert metrics["recall"] == recall_score(golds, predictions, **lone)
    assert metrics["f1"] == f1_score(golds, predictions, **lone)
    if any(
        tag != "O" for row in golds + predictions for tag in row
    ):  # seqeval's strict mode fails where there is nothing
        assert metrics["f1_strict"] == f1_score(golds, predictions, mode="strict", scheme=IOB2, **lone)


def test_each_type_by_itself() -> None:
    from seqeval.metrics import classification_report

    golds = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O", "B-PER"]]
    predictions = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "O", "B-PER"]]
    theirs = classification_report(golds, predictions, output_dict=True, zero_division=0)
    metrics = entity_f1.score(golds, predictions)
    assert {name: metrics[f"f1.{name}"] for name in ("PER", "LOC")} == {
        name: theirs[name]["f1-score"] for name in ("PER", "LOC")
    }
    assert list(metrics) == ["precision", "recall", "f1", "f1_strict", "accuracy", "f1.LOC", "f1.PER"]


def test_an_entity_without_a_beginning_counts_only_by_default() -> None:
    metrics = entity_f1.score([["B-PER", "I-PER"]], [["I-PER", "I-PER"]])
    assert (metrics["f1"], metrics["f1_strict"], metrics["accuracy"]) == (1.0, 0.0, 0.5)


def test_plain_tags_have_accuracy_alone() -> None:
    assert entity_f1.score([["NOUN", "VERB"], ["NOUN"]], [["NOUN", "NOUN"], ["NOUN"]]) == {"accuracy": 2 / 3}


@pytest.mark.parametrize(
    ("tags", "yes"),
    [
        ([["O", "B-PER"]], True),
        ([["I-PER"]], True),
        ([["O"]], False),
        ([["NOUN", "B-PER"]], False),
        ([["B-"]], False),
        ([[]], False),
    ],
)
def test_entity_tags_are_distinguished_from_plain_tags(tags: list[list[str]], yes: bool) -> None:
    assert entity_f1.is_iob(tags) is yes


def test_nothing_but_o_divides_by_nothing() -> None:
    metrics = entity_f1.score([["O", "O"]], [["O", "O"]], entities=True)
    assert metrics == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "f1_strict": 0.0, "accuracy": 1.0}


def test_resampled_metrics_are_exact_and_fast() -> None:
    rng = np.random.default_rng(0)
    size = 1000
    golds, predictions = ([[TAGS[i] for i in rng.integers(0, 7, 8)] for _ in range(size)] for _ in range(2))
    measure = entity_f1.resampler(golds, predictions)
    sample_indices = rng.integers(0, size, size)
    picked = entity_f1.score([golds[i] for i in sample_indices], [predictions[i] for i in sample_indices])
    assert measure(np.arange(size)) == entity_f1.score(golds, predictions)
    assert measure(sample_indices) == picked
    start = time.process_time()
    confidence_intervals(measure, size)
    assert time.process_time() - start < 3  # a fifth of a second here; reading the tags anew takes minutes


def test_a_missing_tag_is_reported() -> None:
    with pytest.raises(MeristemError, match="sentence 1: 1 predicted tags for 2 words"):
        entity_f1.score([["O"], ["O", "O"]], [["O"], ["O"]])


def test_baselines_count_tags_and_words() -> None:
    train = [(("the", "run"), ("DET", "NOUN")), (("run", "run"), ("VERB", "VERB")), (("dog", "cat"), ("NOUN", "NOUN"))]
    baselines = entity_f1.baselines(train, [(("the", "run", "bird"), ("DET", "VERB", "NOUN"))])
    assert baselines["always NOUN (the commonest)"]["accuracy"] == pytest.approx(1 / 3)
    assert baselines["each word's commonest tag"]["accuracy"] == 1.0
