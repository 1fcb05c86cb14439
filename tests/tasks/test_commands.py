"""Intent classification and slot filling: two heads on one encoder, each with its own loss weight."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))

from small import Small, small

from meristem.config.errors import MeristemError
from meristem.data.text_units import join_words
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.interfaces.sample import Sample
from meristem.tasks.components.intent_head import CommandPrediction
from meristem.tasks.components.tag_predictions import TagPrediction

EXAMPLES = [
    ("wake me at seven", "alarm", "O O O B-time"),
    ("play some jazz in the kitchen", "music", "O O B-genre O O B-room"),
    ("wake me at half past nine", "alarm", "O O O B-time I-time I-time"),
    ("lights off in the living room", "lights", "O B-state O O B-room I-room"),
    ("play jazz", "music", "O B-genre"),
    ("kitchen lights on", "lights", "B-room O B-state"),
]
CARRIERS = ["bert", "gpt2", "elmo", "xlnet", "transformer"]


def samples(examples: list[tuple[str, str, str]]) -> list[Sample]:
    out = []
    for number, (text, intent, tags) in enumerate(examples, 2):
        words = tuple(text.split())
        joint, offsets = join_words(words)
        inputs = {"words": words, "text": joint, "offsets": offsets}
        out.append(Sample(inputs=inputs, gold=(intent, tuple(tags.split())), location=f"a.jsonl:{number}"))
    return out


def build_task(backbone: str = "bert", examples: list[tuple[str, str, str]] = EXAMPLES, **more: Any) -> Small:
    return small("commands", samples(examples), backbone, **more)


@pytest.mark.parametrize("backbone", CARRIERS)
def test_it_overfits_a_few_commands(backbone: str) -> None:
    it = build_task(backbone)
    for _ in range(8):
        it.learn(20, 1e-2 if backbone == "elmo" else 5e-3)
        if it.score()["exact"] == 1.0:
            break
    assert it.score() == {"intent_accuracy": 1.0, "slot_f1": 1.0, "exact": 1.0}


@pytest.mark.parametrize(("backbone", "crf"), [*((prediction, False) for prediction in CARRIERS), ("bert", True)])
def test_padding_and_batches_change_no_prediction(backbone: str, crf: bool) -> None:
    it = build_task(backbone, crf=crf)
    it.learn(3)
    for prediction, sample in zip(it.answers(), it.samples, strict=True):
        alone = it.answers([sample])[0]
        assert (prediction.intent, prediction.slots.tags) == (alone.intent, alone.slots.tags)
        assert np.allclose(
            [prediction.score, *prediction.slots.scores], [alone.score, *alone.slots.scores], rtol=0, atol=1e-5
        )


def test_the_loss_terms_have_their_own_weights_and_counts() -> None:
    it = build_task(intent_weight=2.0, slot_weight=0.5)
    batch = it.batch()
    assert batch.target_counts == {"intent": 6, "slots": sum(len(sample.gold[1]) for sample in it.samples)}
    outcome = it.learner("task", batch, batch.target_counts)
    expected = (
        2 * outcome.loss_sums["intent"] / batch.target_counts["intent"]
        + 0.5 * outcome.loss_sums["slots"] / batch.target_counts["slots"]
    )
    assert outcome.loss is not None
    assert outcome.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    losses = predict(it.learner, it.samples).losses
    assert losses["loss"] == pytest.approx(2 * losses["intent"] + 0.5 * losses["slots"], rel=1e-6)


def test_a_long_command_has_one_intent() -> None:
    long = (" ".join([EXAMPLES[1][0]] * 8), "music", " ".join([EXAMPLES[1][2]] * 8))
    it = build_task(examples=[long, *EXAMPLES], max_length=16)
    pieces = it.task.encode_samples(it.samples)
    assert sum(piece.sample_index == 0 for piece in pieces) > 3
    batch = it.batch()
    assert batch.target_counts["intent"] == len(it.samples)
    assert batch.target_counts["slots"] == sum(len(sample.gold[1]) for sample in it.samples)
    assert len(it.answers()[0].slots.tags) == 48


def test_metrics_of_intents_slots_and_both() -> None:
    it = build_task()
    some = it.samples[:4]
    predictions = [
        CommandPrediction(intent="alarm", score=0.9, slots=TagPrediction(tags=some[0].gold[1], scores=(0.9,) * 4)),
        CommandPrediction(intent="alarm", score=0.8, slots=TagPrediction(tags=some[1].gold[1], scores=(0.9,) * 6)),
        CommandPrediction(intent="alarm", score=0.7, slots=TagPrediction(tags=("O",) * 6, scores=(0.6,) * 6)),
        CommandPrediction(intent="lights", score=0.9, slots=TagPrediction(tags=some[3].gold[1], scores=(0.9,) * 6)),
    ]
    judged = evaluate_predictions(it.task, predictions, some)
    assert judged.metrics == {"intent_accuracy": 0.75, "slot_f1": pytest.approx(2 * 5 / (5 + 6)), "exact": 0.5}
    assert it.task.metrics.resampler(predictions, some)(np.array([0, 0, 2, 2])) == {
        "intent_accuracy": 1.0, "slot_f1": pytest.approx(2 / 3), "exact": 0.5}  # fmt: skip
    assert judged.confusion is not None
    assert judged.confusion.labels == ("alarm", "lights", "music")
    assert [(mistake.gold, mistake.prediction, mistake.confidence) for mistake in judged.mistakes[:2]] == [
        ("music", "alarm", 0.8), ("B-time", "O", 0.6)]  # fmt: skip


def test_output_format() -> None:
    it = build_task()
    it.learn(40, 5e-3)
    text = "play some jazz in the kitchen"
    shown = it.task.format_output(it.answers([it.task.parse_input(text)])[0], it.task.parse_input(text))
    assert list(shown) == ["intent", "score", "slots"]
    assert shown["intent"] == "music"
    assert [(slot["entity_group"], slot["word"]) for slot in shown["slots"]] == [("genre", "jazz"), ("room", "kitchen")]
    assert all(text[slot["start"] : slot["end"]] == slot["word"] for slot in shown["slots"])


def test_unseen_intents_and_tags_are_reported() -> None:
    it = build_task()
    (intent, tag) = it.task.metrics.unseen_labels(samples([("stop it", "stop", "O B-what")]))
    assert intent.startswith("a.jsonl:2: the intent 'stop' does not occur in the training data; its 1 sample")
    assert tag.startswith("a.jsonl:2: the tag 'B-what' does not occur")
    with pytest.raises(MeristemError, match=r"data\.intent: every sample has the intent 'alarm'"):
        build_task(examples=EXAMPLES[:1])


@pytest.mark.parametrize("missing", ["intent", "slots"])
def test_a_batch_without_one_of_the_labels_reports_the_same_terms(missing: str) -> None:
    """Processes sum their terms by place: one with later windows alone has no intents, and must report them still."""
    it = build_task()
    whole = it.batch()
    rest = dataclasses.replace(whole, targets={name: goal for name, goal in whole.targets.items() if name != missing})
    counts = it.task.count_targets(rest)
    assert (
        list(counts) == list(it.task.count_targets(whole))
        and counts[missing] == 0 < it.task.count_targets(whole)[missing]
    )
    totals = {term: max(1, number) for term, number in it.task.count_targets(whole).items()}
    full, partial = (it.learner("task", batch, totals) for batch in (whole, rest))
    assert list(full.loss_sums) == list(partial.loss_sums) and list(full.metrics) == list(partial.metrics)
    assert partial.loss_sums[missing].item() == 0.0
