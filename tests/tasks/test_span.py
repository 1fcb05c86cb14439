"""Extractive question answering: windows over long passages, no answer, answers as exact spans of the passage."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from small import BACKBONES, Small, small

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.inputs.batch import Row
from meristem.interfaces.sample import Sample
from meristem.tasks.components.char_spans import char_span_to_tokens, token_span_to_chars
from meristem.tasks.components.span_head import SpanAnswer, SpanCandidate
from meristem.tasks.span import SpanTask
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer
from meristem.utils.randomness import SampleRng

PASSAGE = "the sailor sold seven boats to the old painter in winter , and the painter sold the boats again ."
EXAMPLES = [
    ("who sold boats to the painter", PASSAGE, "the sailor"),
    ("how many boats", PASSAGE, "seven"),
    ("when", PASSAGE, "winter"),
    ("who was old", PASSAGE, "painter"),
    ("who sings", "nobody sings but the gardener .", "the gardener"),
    ("how many letters", "she kept nine letters .", "nine"),
]
CARRIERS = ["bert", "gpt2", "elmo", "xlnet", "transformer"]


def sample(question: str, passage: str, *answers: str, number: int = 0) -> Sample:
    gold = tuple((text, passage.index(text)) for text in answers)
    inputs = {"question": question, "passage": passage, "id": f"q{number}"}
    return Sample(inputs=inputs, gold=gold, location=f"a.json#q{number}")


def samples(examples: Any = EXAMPLES) -> list[Sample]:
    return [sample(*example, number=number) for number, example in enumerate(examples)]


def build_task(backbone: str = "bert", examples: Any = EXAMPLES, *, max_length: int = 48, **more: Any) -> Small:
    return small("span", samples(examples), backbone, max_length=max_length, **more)


@cache
def tokenizer(kind: str) -> Tokenizer:
    texts = ["Zoe\u0301 saw 👩\u200d👧 and 我爱北京 , naïve don't run 42 ❤\ufe0f", PASSAGE]
    return train_tokenizer(TokenizerSettings(kind=kind, vocab_size=400), texts * 30)


# ------------------------------------------------------------ every backbone


@pytest.mark.parametrize("backbone", CARRIERS)
def test_it_overfits_a_few_questions(backbone: str) -> None:
    it = build_task(backbone)
    for _ in range(10):
        it.learn(20, 1e-2 if backbone == "elmo" else 5e-3)
        if it.score()["exact"] == 1.0:
            break
    assert it.score() == {"exact": 1.0, "f1": 1.0}


@pytest.mark.parametrize("backbone", BACKBONES)
def test_padding_and_batches_change_no_prediction(backbone: str) -> None:
    it = build_task(backbone, max_length=24)
    it.learn(1)
    for answer, given_ in zip(it.answers(), it.samples, strict=True):
        alone = it.answers([given_])[0]
        assert (answer.text, answer.start, answer.end) == (alone.text, alone.start, alone.end)
        assert answer.score == pytest.approx(alone.score, abs=1e-5)
    pieces = it.task.encode_samples(it.samples)
    some = [it.samples[0], it.samples[4]]
    per = [predict(it.learner, [answer]).losses["loss"] for answer in some]
    counts = [sum(piece.sample_index == number for piece in pieces) for number in (0, 4)]
    assert max(counts) > 1
    whole = sum(loss * count for loss, count in zip(per, counts, strict=True)) / sum(counts)
    assert predict(it.learner, some).losses["loss"] == pytest.approx(whole, rel=1e-5)


def test_questions_without_answer_are_learned_too() -> None:
    bare = [("who flies", PASSAGE), ("where", PASSAGE)]
    it = build_task(examples=[*EXAMPLES, *bare])
    assert it.recipe.task.allow_no_answer is True
    it.learn(80, 5e-3)
    judged = evaluate_predictions(it.task, it.answers(), it.samples)
    assert judged.metrics == {"exact": 1.0, "f1": 1.0, "has_answer_f1": 1.0, "no_answer_accuracy": 1.0}
    assert judged.confusion is not None
    assert judged.confusion.matrix.tolist() == [[6, 0], [0, 2]]
    assert it.task.format_output(it.answers()[6], it.samples[6])["answer"] == ""
    never = type(it.task)(it.recipe.task.model_copy(update={"no_answer_bias": -1e6}), it.tokenizer)
    it.learner.objectives["task"] = never
    assert all(answer.text for answer in it.answers())


# ------------------------------------------------------------ windows


@pytest.mark.parametrize("backbone", CARRIERS)
def test_windows_share_the_question_and_point_to_the_answer(backbone: str) -> None:
    it = build_task(backbone, max_length=20, stride=4, max_question_length=3)
    pieces = it.task.encode_samples(it.samples)
    mine = [piece for piece in pieces if piece.sample_index == 2]
    assert len(mine) > 1
    assert all(piece.num_tokens <= 20 for piece in pieces)
    assert pieces[0].num_truncated == len(it.task.template.tokenize([EXAMPLES[0][0]])[0].ids) - 3
    held = 0
    for number, piece in enumerate(mine):
        row = it.task.prepare(Row(inputs={}, metadata={"piece": piece}), SampleRng(0, 0, number))
        assert len(row.inputs["tokens"]) == piece.num_tokens
        goal, part = row.targets["span"], piece.features["passage"]
        base = row.metadata["base"]
        tokens = row.inputs["source" if "source" in row.inputs else "tokens"]
        assert tokens[base : base + len(part.ids)].tolist() == part.ids.tolist()
        if goal["first"][0] == row.targets["nowhere"]["at"][0]:
            assert "winter" not in part.text[part.offsets[0, 0] : part.offsets[-1, 1]]
            continue
        held += 1
        first, last = goal["first"][0] - base, goal["last"][0] - base
        assert part.text[part.offsets[first, 0] : part.offsets[last, 1]] == "winter"
    assert held >= 1
    assert it.batch().target_counts["span"] == len(pieces)


@settings(max_examples=50, deadline=None)
@given(st.integers(8, 40), st.integers(1, 60), st.integers(1, 12), st.data())
def test_every_answer_is_complete_in_some_window(length: int, stride: int, reach: int, data: Any) -> None:
    task = task_of("characters", max_length=length, stride=stride, max_answer_length=reach, max_question_length=2)
    passage = "abcdefghij" * 10
    room = task.template.max_text_tokens(2) - 2
    start = data.draw(st.integers(0, len(passage) - 1))
    tokens = min(reach, room // 2, len(passage) - start)
    gold = Sample(inputs={"question": "xy", "passage": passage}, gold=((passage[start : start + tokens], start),))
    pieces = task.encode_samples([gold])
    spans = [
        (piece.features["start"], piece.features["start"] + len(piece.features["passage"].ids)) for piece in pieces
    ]
    first, last = pieces[0].features["target"]
    assert (first, last) == (start, start + tokens - 1)
    assert any(a <= first and last < b for a, b in spans)


def task_of(kind: str = "wordpiece", **more: Any) -> SpanTask:
    span_settings = SpanTask.Settings(
        backbone_mode="bidirectional", max_length=more.pop("max_length", 32), allow_no_answer=False, **more
    )
    return SpanTask(span_settings, tokenizer(kind))


def offered(
    task: SpanTask, given_: Sample, *window_scores: dict[tuple[int, int], float], nothing: float = 0.0
) -> SpanAnswer:
    pieces = task.encode_samples([given_])[: len(window_scores)]
    assert len(pieces) == len(window_scores)
    candidates = [
        SpanCandidate(no_answer_score=nothing, scores=tuple(scores.values()), spans=tuple(scores))
        for scores in window_scores
    ]
    return task.merge_pieces([given_], pieces, candidates)[0]


def test_windows_are_compared_by_scores() -> None:
    task, long = task_of(max_length=20, stride=4), sample("who", PASSAGE)
    answer = offered(task, long, {(1, 1): 2.0, (3, 3): 1.0}, {(4, 4): 3.0, (3, 3): 2.5})
    assert (answer.text, [other.text for other in answer.others]) == ("boats", ["seven", "sailor"])
    expected = torch.tensor([3.0, 2.5, 2.0]).softmax(0)  # the same stretch in two windows counts once
    assert [answer.score, *(other.score for other in answer.others)] == pytest.approx(expected.tolist())


def test_no_answer_is_compared_with_the_best_span() -> None:
    question = sample("who", PASSAGE)
    changed = {"allow_no_answer": True}
    settings_ = task_of().settings.model_copy(update=changed)
    for nothing, bias, text in ((1.0, 0.0, "sailor"), (2.5, 0.0, ""), (2.5, -1.0, "sailor"), (1.0, 2.0, "")):
        task = SpanTask(settings_.model_copy(update={"no_answer_bias": bias}), tokenizer("wordpiece"))
        answer = offered(task, question, {(1, 1): 2.0}, nothing=nothing)
        assert answer.text == text
        assert answer.score + answer.others[0].score == pytest.approx(1.0)


def test_answers_are_not_longer_than_they_may_be() -> None:
    it = build_task(max_answer_length=2, n_best_size=50)
    for answer in it.answers():
        for candidate in (answer, *answer.others):
            assert len(candidate.text.split()) <= 2
    it = build_task(n_best_size=3)
    assert all(len(answer.others) == 2 for answer in it.answers())


# ------------------------------------------------------------ characters


TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["Zoe\u0301", "👩\u200d👧", "我爱北京", "naïve", "don't", "  ", "\n", "❤\ufe0f", "👍🏽", "42", ","]
        ),
        st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=6),
    ),
    max_size=12,
).map(" ".join)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters", "words"])
@settings(max_examples=40, deadline=None)
@given(passage=TEXTS, data=st.data())
def test_an_answer_is_always_a_span_of_the_passage(kind: str, passage: str, data: Any) -> None:
    encoding = tokenizer(kind).encode(passage)
    if not len(encoding.ids):
        return
    first = data.draw(st.integers(0, len(encoding.ids) - 1))
    last = data.draw(st.integers(first, len(encoding.ids) - 1))
    start, end = token_span_to_chars(passage, encoding.offsets, first, last)
    assert 0 <= start <= end <= len(passage)
    assert passage[start:end] == passage[start:end].strip()
    task, given_ = task_of(kind, max_length=256), sample("who", passage)
    answer_ = offered(task, given_, {(first, last): 1.0})
    assert passage[answer_.start : answer_.end] == answer_.text
    assert answer_.text in passage


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters", "words"])
@settings(max_examples=60, deadline=None)
@given(passage=TEXTS, data=st.data())
def test_a_gold_answer_comes_back_from_its_tokens(kind: str, passage: str, data: Any) -> None:
    start = data.draw(st.integers(0, len(passage)))
    end = data.draw(st.integers(start, len(passage)))
    offsets = tokenizer(kind).encode(passage).offsets
    token_span = char_span_to_tokens(offsets, start, end)
    covered = {at for a, b in offsets.tolist() for at in range(a, b)}
    covered_positions = [at for at in range(start, end) if at in covered and not passage[at].isspace()]
    if token_span is None:
        assert not covered_positions
        return
    char_span = token_span_to_chars(passage, offsets, *token_span)
    assert all(char_span[0] <= at < char_span[1] for at in covered_positions)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters", "words"])
@pytest.mark.parametrize("gold", ["Zoe\u0301", "👩\u200d👧", "👍🏽", "爱北", "❤\ufe0f", "n't r"])
def test_marks_and_joined_emoji_are_never_cut(kind: str, gold: str) -> None:
    passage = "So  Zoe\u0301 saw 👩\u200d👧 👍🏽 我爱北京, ❤\ufe0f don't run"
    task, given_ = task_of(kind, max_length=128), sample("who", passage, gold)
    (piece,) = task.encode_samples([given_])
    answer = offered(task, given_, {piece.features["target"]: 1.0})
    assert gold in answer.text
    if gold in ("Zoe\u0301", "👩\u200d👧", "👍🏽", "❤\ufe0f"):
        assert answer.text == gold


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters"])
def test_words_separated_by_spaces_are_never_cut(kind: str) -> None:
    passage = "The photosynthesis of leaves"
    offsets = tokenizer(kind).encode(passage).offsets
    for first in range(len(offsets)):
        start, end = token_span_to_chars(passage, offsets, first, first)
        assert passage[start:end] in ("", *passage.split())
    assert token_span_to_chars("photosynthesis", np.array([[3, 6]]), 0, 0) == (0, 14)
    assert token_span_to_chars("我爱北京", np.array([[1, 2]]), 0, 0) == (1, 2)
    assert token_span_to_chars("1990s", np.array([[0, 4]]), 0, 0) == (0, 4)


def test_a_span_of_only_white_space_is_no_answer() -> None:
    task, given_ = task_of("characters", max_length=64), sample("who", "a  \n b")
    assert offered(task, given_, {(1, 3): 5.0, (0, 2): 1.0}).text == "a"
    answer = offered(task, given_, {(1, 3): 5.0})
    assert (answer.text, answer.start, answer.end) == ("", 0, 0)


# ------------------------------------------------------------ what is asked and judged


def test_strange_questions_and_passages() -> None:
    it = build_task()
    long = {"question": "who " * 500, "passage": PASSAGE * 20}
    asked = [
        it.task.parse_input(answer)
        for answer in (long, {"question": "", "passage": "a b"}, {"question": "who", "passage": ""})
    ]
    answers = it.answers(asked)
    assert (answers[2].text, answers[2].start, answers[2].end) == ("", 0, 0)
    for answer, given_ in zip(answers, asked, strict=True):
        assert given_.inputs["passage"][answer.start : answer.end] == answer.text
    assert it.task.encode_samples(asked[:1])[0].num_truncated == 500 - it.task.template.max_text_tokens(2) // 2
    for wrong in ("who?", {"question": "who?"}, {"text": "a"}):
        with pytest.raises(MeristemError, match="task span takes a question and a passage"):
            it.task.parse_input(wrong)
    (warning,) = it.task.metrics.unseen_labels([*it.samples, sample("why", PASSAGE, number=7)])
    assert warning.startswith("a.json#q7: no answer, but every question of the training data has one")


def test_evaluation() -> None:
    it = build_task()
    predictions = [SpanAnswer(text=text, start=0, end=0, score=0.9 - 0.1 * number)
            for number, text in enumerate(["The sailor!", "seven boats", "summer", "painter", "", "nine"])]  # fmt: skip
    judged = evaluate_predictions(it.task, predictions, it.samples)
    assert judged.metrics["exact"] == pytest.approx(3 / 6)
    assert judged.metrics["f1"] == pytest.approx((1 + 2 / 3 + 0 + 1 + 0 + 1) / 6)
    assert judged.intervals["f1"][0] < judged.metrics["f1"] < judged.intervals["f1"][1]
    assert [(mistake.gold, mistake.prediction, mistake.location) for mistake in judged.mistakes] == [
        ("seven", "seven boats", "a.json#q1"),
        ("winter", "summer", "a.json#q2"),
        ("the gardener", "no answer", "a.json#q4"),
    ]
    assert list(it.task.format_output(it.answers()[0], it.samples[0])) == ["answer", "score", "start", "end"]
    assert it.task.example_commands("runs/x", it.samples[1])[0].startswith(
        "meristem predict runs/x --question 'how many boats'"
    )


# ------------------------------------------------------------ a whole run


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    paragraphs = [
        {"context": passage, "qas": [{"id": f"q{n}", "question": question,
                                      "answers": [{"text": gold, "answer_start": passage.index(gold)}]}]}
        for n, (question, passage, gold) in enumerate(EXAMPLES * 3)
    ]  # fmt: skip
    file.write_text(json.dumps({"version": "1.1", "data": [{"title": "a", "paragraphs": paragraphs}]}))
    recipe = tmp_path / "span.yaml"
    recipe.write_text(yaml.safe_dump({
        "task": {"name": "span", "stride": 4},
        "data": {"train": str(file), "held_out": 0.2},
        "tokenizer": {"kind": "wordpiece", "vocab_size": 300},
        "model": {"family": "bert", "max_length": 20, "dropout": 0.1, **BACKBONES["bert"]},
        "train": {"schedule": "constant", "batch_samples": 4, "threads": 1, "evaluate_every": 3, "learning_rate": 1e-3},
    }))  # fmt: skip

    def run(out: str, steps: int) -> dict[str, Any]:
        api.finetune(recipe, {"train.steps": steps}, out=tmp_path / out, console=Console(quiet=True))
        checkpoint = load_checkpoint(RunFolder.open(tmp_path / out).checkpoints)
        assert checkpoint is not None
        return {"step": checkpoint.snapshot.step, **checkpoint.snapshot.model}

    whole = run("whole", 7)
    run("parted", 4)
    parted = run("parted", 7)
    assert whole["step"] == parted["step"] == 7
    assert all(torch.equal(value, parted[name]) for name, value in whole.items() if name != "step")
    shown = api.load(tmp_path / "whole").predict({"question": "when", "passage": PASSAGE})
    assert PASSAGE[shown["start"] : shown["end"]] == shown["answer"]
