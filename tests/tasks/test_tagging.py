"""Sequence labelling on every kind of backbone: word-token alignment, sliding windows, CRF, output spans."""

from __future__ import annotations

import dataclasses
import sys
from itertools import pairwise
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
from meristem.data.text_units import join_words, word_spans
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.interfaces.sample import Sample
from meristem.tasks.components import tag_predictions
from meristem.tasks.components.sliding_windows import innermost_window, sliding_windows
from meristem.tasks.components.tag_predictions import TagPrediction
from meristem.tasks.components.word_alignment import word_token_positions
from meristem.tasks.components.word_inputs import complete_word_inputs

NAMED = [
    ("Ada Lovelace met Charles Babbage in London .", "B-PER I-PER O B-PER I-PER O B-LOC O"),
    ("London is large .", "B-LOC O O O"),
    ("Nobody saw Ada in New York yesterday .", "O O B-PER O B-LOC I-LOC O O"),
    ("Babbage wrote to Lovelace .", "B-PER O O B-PER O"),
    ("It rained .", "O O O"),
    ("New York and London are far from Ada .", "B-LOC I-LOC O B-LOC O O O B-PER O"),
]
POS = [("the old gardener sleeps", "DET ADJ NOUN VERB"), ("a sailor sings", "DET NOUN VERB"), ("sing !", "VERB PUNCT")]
CARRIERS = ["bert", "gpt2", "elmo", "xlnet", "transformer"]


def samples(examples: list[tuple[str, str]]) -> list[Sample]:
    out = []
    for number, (text, tags) in enumerate(examples, 1):
        words = tuple(text.split())
        joint, offsets = join_words(words)
        inputs = {"words": words, "text": joint, "offsets": offsets}
        out.append(Sample(inputs=inputs, gold=tuple(tags.split()), location=f"a.conll:{number}"))
    return out


def build_task(backbone: str = "bert", examples: list[tuple[str, str]] = NAMED, **more: Any) -> Small:
    return small("tagging", samples(examples), backbone, **more)


def same(first: list[TagPrediction], second: list[TagPrediction]) -> bool:
    return [a.tags for a in first] == [b.tags for b in second] and all(
        np.allclose(a.scores, b.scores, rtol=0, atol=1e-5) for a, b in zip(first, second, strict=True)
    )


# ------------------------------------------------------------ every backbone


@pytest.mark.parametrize(("backbone", "crf"), [*((item, False) for item in CARRIERS), ("bert", True), ("elmo", True)])
def test_it_overfits_a_few_sentences(backbone: str, crf: bool) -> None:
    it = build_task(backbone, crf=crf)
    assert it.recipe.task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    first, enough = it.learn(1), 0.8 if backbone == "gpt2" else 1.0  # it reads "Ada" before it knows what follows
    for _ in range(8):
        last = it.learn(20, 1e-2 if backbone == "elmo" else 5e-3)
        if it.score()["f1"] >= enough:
            break
    assert it.score()["f1"] >= enough
    assert last < first / 2


@pytest.mark.parametrize(
    ("backbone", "crf"), [*((item, False) for item in BACKBONES), *((item, True) for item in CARRIERS)]
)
def test_padding_and_batches_change_no_prediction(backbone: str, crf: bool) -> None:
    it = build_task(backbone, crf=crf)
    it.learn(2)
    alone = [it.answers([sample])[0] for sample in it.samples]
    assert same(it.answers(), alone)
    losses = [predict(it.learner, [sample]).losses["loss"] * len(sample.gold) for sample in it.samples[:3]]
    words = sum(len(sample.gold) for sample in it.samples[:3])
    assert predict(it.learner, it.samples[:3]).losses["loss"] == pytest.approx(sum(losses) / words, rel=1e-5)


def test_plain_tags_are_distinguished_from_entities() -> None:
    it = build_task(examples=POS)
    assert (it.task.metric, it.task.metrics.entities) == ("accuracy", False)
    it.learn(50, 5e-3)
    assert it.score() == {"accuracy": 1.0}
    shown = it.task.format_output(it.answers()[1], it.samples[1])
    assert [(item["entity"], item["word"], item["start"], item["end"]) for item in shown] == [
        ("DET", "a", 0, 1), ("NOUN", "sailor", 2, 8), ("VERB", "sings", 9, 14)]  # fmt: skip
    assert all(0.5 < item["score"] <= 1 for item in shown)
    assert build_task().task.metric == "f1"
    assert it.task.example_commands("runs/x", it.samples[1]) == ["meristem predict runs/x 'a sailor sings'"]


@pytest.mark.parametrize("crf", [False, True])
def test_a_causal_model_with_the_language_model_loss(crf: bool) -> None:
    it = build_task("gpt2", crf=crf, lm_weight=0.5)
    batch = it.batch()
    assert batch.target_counts["lm"] == sum(piece.num_tokens - 1 for piece in it.task.encode_samples(it.samples))
    outcome = it.learner("task", batch, {"tagging": 2, "lm": 3})
    assert outcome.loss is not None
    expected = outcome.loss_sums["tagging"] / 2 + 0.5 * outcome.loss_sums["lm"] / 3
    assert outcome.loss.item() == pytest.approx(expected.item(), rel=1e-6)


# ------------------------------------------------------------ words and tokens


HARD = "Zoë\u0301 saw 👩\u200d👧 and 我爱北京 , naïve don't"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "characters", "words"])
def test_every_word_has_its_own_token(kind: str) -> None:
    words = ["Zoë\u0301", "saw", "👩\u200d👧", "我", "爱", "北", "京", ",", "do", "n't", "\x01", "unheard"]
    sample = samples([(" ".join(words[:-1]), " ".join(["X", "Y"] * 5 + ["X"]))])[0]
    it = small("tagging", [sample] * 20, "bert", max_length=64)
    tokenizer = _tokenizer(kind, [HARD] * 30 + ["我爱北京"] * 30)
    task = type(it.task)(it.recipe.task, tokenizer)
    text, offsets = join_words(words)
    asked = Sample(inputs={"words": tuple(words), "text": text, "offsets": offsets})
    (piece,) = task.encode_samples([asked])
    token_of_word = dict(zip(piece.features["words"].tolist(), piece.features["positions"].tolist(), strict=True))
    assert len(set(token_of_word.values())) == len(token_of_word)
    gone = {10} if kind in ("wordpiece", "words") else set()
    assert set(range(len(words))) - set(token_of_word) == gone
    for word, at in token_of_word.items():
        first, stop = piece.features["text"].offsets[at]
        assert first < offsets[word][1] and stop > offsets[word][0], words[word]
        assert first == offsets[word][0], words[word]


def _tokenizer(kind: str, texts: list[str]) -> Any:
    from meristem.tokenizers.settings import TokenizerSettings
    from meristem.tokenizers.train import train_tokenizer

    return train_tokenizer(TokenizerSettings(kind=kind, vocab_size=400), texts)


def test_words_without_tokens_have_the_default_tag() -> None:
    it = build_task(examples=[*POS, ("\x01 sailor", "NOUN NOUN")])
    it.learn(40, 5e-3)
    prediction = it.answers()[3]
    assert it.task.metrics.tags.default_tag == "NOUN"
    assert (prediction.tags[0], prediction.scores[0]) == ("NOUN", 0.0)
    alone = it.answers([it.task.parse_input({"words": ["\x01", "\x02"]}), it.task.parse_input("")])
    assert [item.tags for item in alone] == [("NOUN", "NOUN"), ()]
    assert it.task.format_output(alone[1], it.task.parse_input("")) == []
    assert build_task().task.metrics.tags.default_tag == "O"


def test_a_word_is_represented_by_its_first_or_last_token() -> None:
    offsets = np.array([[0, 3], [3, 5], [6, 6], [6, 9], [9, 10]])
    words = [(0, 5), (6, 9), (9, 10), (10, 12)]
    assert word_token_positions(offsets, words).tolist() == [0, 3, 4, -1]
    assert word_token_positions(offsets, words, "last").tolist() == [1, 3, 4, -1]
    assert word_token_positions(offsets, [(1, 3), (2, 4)]).tolist() == [0, 1]  # begun before, but there is none other
    assert word_token_positions(np.zeros((0, 2), int), words).tolist() == [-1] * 4


def test_a_raw_text_is_split_into_words() -> None:
    text = "Don't pay 3.50€ to Zoe\u0301 (我爱北京)! ❤\ufe0f 👩\u200d👧 👍🏽 x\u00ady\x01z"
    assert [text[a:b] for a, b in word_spans(text)] == [
        "Don", "'", "t", "pay", "3", ".", "50", "€", "to", "Zoe\u0301", "(", "我", "爱", "北", "京", ")", "!",
        "❤\ufe0f", "👩\u200d👧", "👍🏽", "x\u00ady", "z",
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_splitting_loses_no_visible_character(text: str) -> None:
    spans = word_spans(text)
    assert all(a < b for a, b in spans)
    assert all(item[1] <= other[0] for item, other in pairwise(spans))
    inside = {at for a, b in spans for at in range(a, b)}
    assert all(not text[at].isalnum() or at in inside for at in range(len(text)))


def test_words_are_joined_as_they_are_written() -> None:
    assert join_words(["New", "York", "北", "京", "!"]) == (
        "New York 北京 !",
        ((0, 3), (4, 8), (9, 10), (10, 11), (12, 13)),
    )


# ------------------------------------------------------------ long texts


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 200), st.integers(1, 30), st.integers(1, 40))
def test_windows_cover_everything(tokens: int, room: int, stride: int) -> None:
    spans = sliding_windows(tokens, room, stride)
    assert {at for a, b in spans for at in range(a, b)} == set(range(tokens))
    assert all(b - a <= room for a, b in spans)
    owner = innermost_window(np.arange(tokens), spans)
    assert all(spans[w][0] <= at < spans[w][1] for at, w in enumerate(owner))
    assert (np.diff(owner) >= 0).all()


def test_a_token_belongs_to_the_window_with_the_most_context() -> None:
    assert sliding_windows(20, 10, 6) == [(0, 10), (6, 16), (10, 20)]
    assert innermost_window(np.arange(20), sliding_windows(20, 10, 6)).tolist() == [0] * 8 + [1] * 5 + [2] * 7


@pytest.mark.parametrize("backbone", ["bert", "gpt2", "elmo", "xlnet", "transformer"])
@pytest.mark.parametrize("crf", [False, True])
def test_no_word_of_a_long_text_is_lost(backbone: str, crf: bool) -> None:
    long = [(" ".join(text for text, _ in NAMED * 3), " ".join(tags for _, tags in NAMED * 3)), *NAMED[:2]]
    it = small("tagging", samples(long), backbone, max_length=16, crf=crf)
    pieces = it.task.encode_samples(it.samples)
    assert len(pieces) > 5
    mine = np.concatenate(
        [piece.features["words"][piece.features["own_words"]] for piece in pieces if piece.sample_index == 0]
    )
    assert mine.tolist() == list(range(len(it.samples[0].gold)))
    assert all(piece.num_truncated == 0 and piece.num_tokens <= 16 for piece in pieces)
    assert it.batch().target_counts["tagging"] == sum(len(sample.gold) for sample in it.samples)
    predictions = it.answers()
    assert len(predictions[0].tags) == len(it.samples[0].gold)
    assert min(predictions[0].scores) > 0


# ------------------------------------------------------------ the CRF


def test_only_valid_sequences_are_predicted() -> None:
    it = build_task(crf=True)
    with torch.no_grad():  # emissions that would begin with I-PER everywhere
        it.learner.model.heads["tagging"].bias[it.task.metrics.tags.label_ids["I-PER"]] += 20.0
    for prediction in it.answers():
        before = "O"
        for tag in prediction.tags:
            assert tag[:2] != "I-" or before[2:] == tag[2:]
            before = tag
    assert any("I-PER" in prediction.tags for prediction in it.answers())
    plain = build_task()
    with torch.no_grad():
        plain.learner.model.heads["tagging"].bias[plain.task.metrics.tags.label_ids["I-PER"]] += 20.0
    assert plain.answers()[0].tags[0] == "I-PER"  # which only the CRF forbids


def test_a_type_without_b_tag_may_start_with_i() -> None:
    table = tag_predictions.allowed_transitions(("O", "B-A", "I-A", "I-C"))
    assert table[:, 2].tolist() == [False, True, True, False, False]
    assert table[:, 3].all()


def test_unknown_tags_are_summed_over() -> None:
    """A word whose tag is untold counts as nothing, with or without the CRF."""
    for crf in (False, True):
        it = build_task(examples=[("a b c", "X _ Y"), ("b a", "Y X")], crf=crf)
        assert it.recipe.task.labels == ("X", "Y")
        assert it.batch().target_counts["tagging"] == 4
        it.learn(40, 5e-3)
        assert it.score() == {"accuracy": 1.0}


# ------------------------------------------------------------ answers


def test_entities_are_grouped_as_pipelines_do() -> None:
    tags = ["I-PER", "I-PER", "B-PER", "I-LOC", "I-LOC", "O", "B-LOC", "B-LOC", "O", "I-PER"]
    assert list(tag_predictions.entity_groups(tags)) == [
        ("PER", 0, 2), ("PER", 2, 3), ("LOC", 3, 5), ("LOC", 6, 7), ("LOC", 7, 8), ("PER", 9, 10)]  # fmt: skip
    assert list(tag_predictions.entity_groups([])) == []
    text = "He met  Zoe\u0301  Ray 👩\u200d👧!"
    it = build_task()
    sample = it.task.parse_input(text)
    assert sample.inputs["words"] == ("He", "met", "Zoe\u0301", "Ray", "👩\u200d👧", "!")
    prediction = TagPrediction(tags=("O", "O", "B-PER", "I-PER", "B-LOC", "O"), scores=(0.9, 0.9, 0.5, 0.7, 0.8, 0.9))
    shown = it.task.format_output(prediction, sample)
    assert [list(item) for item in shown] == [["entity_group", "score", "word", "start", "end"]] * 2
    assert shown[0] == {
        "entity_group": "PER",
        "score": pytest.approx(0.6),
        "word": "Zoe\u0301  Ray",
        "start": 8,
        "end": 17,
    }
    assert all(text[item["start"] : item["end"]] == item["word"] for item in shown)


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=30), st.data())
def test_output_spans_are_in_the_text(text: str, data: Any) -> None:
    sample = Sample(inputs=complete_word_inputs({"text": text}))
    words = len(sample.inputs["words"])
    tags = data.draw(st.lists(st.sampled_from(["O", "B-A", "I-A", "I-C"]), min_size=words, max_size=words))
    prediction = TagPrediction(tags=tuple(tags), scores=(0.5,) * words)
    for entities in (True, False):
        for item in tag_predictions.format_tags(prediction, sample, entities=entities):
            assert text[item["start"] : item["end"]] == item["word"] != ""


def test_evaluation() -> None:
    it = build_task()
    it.learn(40, 5e-3)
    others = [*it.samples[:3], *samples([("Ada wrote", "B-ORG _")])]
    (warning,) = it.task.metrics.unseen_labels(others)
    assert warning.startswith("a.conll:1: the tag 'B-ORG' does not occur in the training data; its 1 word")
    judged = evaluate_predictions(it.task, it.answers(others), others)
    assert 0 <= judged.intervals["f1"][0] <= judged.metrics["f1"] <= judged.intervals["f1"][1] <= 1
    assert judged.confusion is not None
    assert judged.confusion.labels[0] == "O"
    assert "ORG" in judged.confusion.labels
    assert judged.confusion.matrix.sum() == sum(len(item.gold) for item in others) - 1
    wrong = next(item for item in judged.mistakes if item.gold == "B-ORG")
    assert wrong.input_text == "[Ada] wrote"
    assert wrong.location == "a.conll:1"


def test_invalid_data_is_reported() -> None:
    it = build_task()
    with pytest.raises(MeristemError, match="task tagging takes a text"):
        it.task.parse_input({"question": "who?"})
    with pytest.raises(MeristemError, match=r"a\.conll:2: the tag 'ADJ' is not among task\.labels"):
        build_task(examples=[("a b", "DET X"), *POS], labels=("DET", "X"))
    with pytest.raises(MeristemError, match="no training sample has a tag"):
        build_task(examples=[("a b", "_ _")])


# ------------------------------------------------------------ a whole run


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    file = tmp_path / "train.conll"
    blocks = ["\n".join(map("\t".join, zip(text.split(), tags.split(), strict=True))) for text, tags in NAMED * 4]
    file.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")

    recipe = tmp_path / "tagging.yaml"
    recipe.write_text(yaml.safe_dump({
        "task": {"name": "tagging", "crf": True},
        "data": {"train": str(file), "held_out": 0.2},
        "tokenizer": {"kind": "wordpiece", "vocab_size": 300},
        "model": {"family": "bert", "max_length": 16, "dropout": 0.1, **BACKBONES["bert"]},
        "train": {"schedule": "constant", "batch_samples": 4, "threads": 1, "evaluate_every": 3, "learning_rate": 1e-3},
    }))  # fmt: skip

    def train(out: str, steps: int) -> dict[str, Any]:
        api.finetune(recipe, {"train.steps": steps}, out=tmp_path / out, console=Console(quiet=True))
        checkpoint = load_checkpoint(RunFolder.open(tmp_path / out).checkpoints)
        assert checkpoint is not None
        return {"step": checkpoint.snapshot.step, **checkpoint.snapshot.model}

    whole = train("whole", 7)
    train("parted", 4)
    parted = train("parted", 7)
    assert whole["step"] == parted["step"] == 7
    assert all(torch.equal(value, parted[name]) for name, value in whole.items() if name != "step")
    text = "Ada met Babbage in New York."
    for item in api.load(tmp_path / "whole").predict(text):
        assert text[item["start"] : item["end"]] == item["word"]


@pytest.mark.parametrize("crf", [False, True])
def test_a_batch_without_tags_reports_the_same_terms(crf: bool) -> None:
    it = build_task(crf=crf)
    whole = it.batch()
    rest = dataclasses.replace(whole, targets={name: goal for name, goal in whole.targets.items() if name != "tagging"})
    rest = dataclasses.replace(rest, target_counts=it.task.count_targets(rest))
    item, other = (it.learner("task", batch, whole.target_counts) for batch in (whole, rest))
    assert rest.target_counts == {"tagging": 0} and other.loss_sums["tagging"].item() == 0.0
    assert list(item.loss_sums) == list(other.loss_sums) and list(item.metrics) == list(other.metrics)
