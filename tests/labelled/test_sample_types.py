"""Sample types: columns are found by their common names, and rows become samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings


def rows(
    folder: Path, sample_type: str, *records: dict[str, Any], gold: bool = True, **options: object
) -> list[Sample]:
    path = folder / "a.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return load_samples(str(path), DataSettings(**options), sample_type, require_gold=gold)


@pytest.mark.parametrize("names", ["text label", "Sentence LABEL", "review sentiment", "content stars", "评论 标签"])
def test_texts(tmp_path, names):
    text, label = names.split()
    (sample,) = rows(tmp_path, "text", {"index": 3, text: "fine ", label: "good"})
    assert (sample.inputs, sample.gold) == ({"text": "fine"}, "good")


def test_the_only_other_column_is_the_text(tmp_path):
    assert rows(tmp_path, "text", {"verse": "fine", "label": 1})[0].inputs == {"text": "fine"}


@pytest.mark.parametrize(
    "names",
    [
        "premise hypothesis label",
        "sentence1 sentence2 score",
        "question1 question2 is_duplicate",
        "question sentence label",
        "text text_b label",
        "#1_String #2_String Quality",
    ],
)
def test_pairs(tmp_path, names):
    first, second, label = (name.replace("_S", " S") for name in names.split())
    (sample,) = rows(tmp_path, "pair", {"id": 1, first: "a", second: "b", label: 1})
    assert (sample.inputs, sample.gold) == ({"text": "a", "text_b": "b"}, 1)


def test_one_of_two_texts_named(tmp_path):
    row = {"premise": "a", "hypothesis": "b", "other": "c", "label": "x"}
    assert rows(tmp_path, "pair", row, text_b="other", text="premise")[0].inputs == {"text": "a", "text_b": "c"}
    assert rows(tmp_path, "pair", row, text="premise")[0].inputs == {"text": "a", "text_b": "b"}
    assert rows(tmp_path, "pair", row, text_b="hypothesis")[0].inputs == {"text": "a", "text_b": "b"}


def test_labels_among_several_are_mentioned(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a", "label": "x", "score": 3}))
    notices: list[str] = []
    assert load_samples(str(path), DataSettings(), "text", notices=notices)[0].gold == "x"
    assert notices == [f"{path}: labels are read from 'label'; other candidates: score (data.label=…)"]


@pytest.mark.parametrize(
    ("row", "expected_inputs", "gold"),
    [
        ({"premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "label": 1}, ("p", "cause"), 1),
        ({"ctx": "p", "endings": ["a", "b"], "label": "0"}, ("p", ""), 0),
        ({"article": "p", "question": "q", "options": ["a", "b"], "answer": "B"}, ("p", "q"), 1),
        ({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "A"}, ("q", ""), 0),
        ({"goal": "p", "sol1": "a", "sol2": "b", "label": 0}, ("p", ""), 0),
        ({"sentence": "p", "option1": "a", "option2": "b", "answer": "2"}, ("p", ""), 1),
        ({"context": "p", "question": "q", "answerA": "a", "answerB": "b", "label": "b"}, ("p", "q"), 1),
        ({"text": "p", "question": "", "choices": ["a", "b"], "label": 1}, ("p", ""), 1),
    ],
)
def test_choices(tmp_path, row, expected_inputs, gold):
    (sample,) = rows(tmp_path, "choice", row)
    assert (sample.inputs["text"], sample.inputs["question"]) == expected_inputs
    assert (sample.inputs["choices"], sample.gold) == (("a", "b"), gold)


def test_invalid_choices(tmp_path):
    good = {"text": "p", "choices": ["a", "b"], "label": 0}
    for wrong, match in [
        ({"label": 5}, r"a\.jsonl:2: choice 5 of 2"),
        ({"label": "other"}, r"a\.jsonl:2: 'other' is none of the choices"),
        ({"choices": ["a"]}, r"a\.jsonl:2: fewer than two"),
        ({"choices": ["a", " "]}, r"a\.jsonl:2: choice 2 is empty"),
        ({"label": None}, r"a\.jsonl:2: no correct choice"),
    ]:
        with pytest.raises(MeristemError, match=match):
            rows(tmp_path, "choice", good, {**good, **wrong})
    columns = {"text": "p", "one": "a", "two": "b", "label": 0}
    with pytest.raises(MeristemError, match=r"which column holds the choices.*data\.choices"):
        rows(tmp_path, "choice", columns)
    assert rows(tmp_path, "choice", columns, choices=("one", "two"))[0].inputs["choices"] == ("a", "b")


@pytest.mark.parametrize(
    "row",
    [
        {"turns": ["hi", "hello", "how?"], "target": "well"},
        {"dialog": ["hi", "hello", "how?"], "response": "well"},
        {
            "messages": [{"role": "user", "content": t} for t in ("hi", "hello", "how?")]
            + [{"role": "assistant", "content": "well"}]
        },
        {"dialogue": "hi __eou__ hello __eou__ how? __eou__", "reply": "well"},
        {"turns": '["hi", "hello", "how?"]', "target": ["well", "fine"]},
    ],
)
def test_turns(tmp_path, row):
    (sample,) = rows(tmp_path, "turns", row)
    assert sample.inputs == {"turns": ("hi", "hello", "how?")} and sample.gold[0] == "well"


def test_every_reply_of_a_dialogue_is_a_sample(tmp_path):
    samples = rows(tmp_path, "turns", {"dialog": ["a", "b", "c", "d"]})
    assert [(sample.inputs["turns"], sample.gold) for sample in samples] == [
        (("a",), ("b",)),
        (("a", "b", "c"), ("d",)),
    ]
    chat = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}]
    assert [row.gold for row in rows(tmp_path, "turns", {"conversations": chat})] == [("b",)]
    with pytest.raises(MeristemError, match=r"a\.jsonl:1: a dialogue of one turn"):
        rows(tmp_path, "turns", {"dialog": ["a"]})
    assert rows(tmp_path, "turns", {"prompt": "a", "completion": "b"})[0].gold == ("b",)
    assert rows(tmp_path, "turns", {"dialog": ["a", "b"]}, gold=False)[0].inputs == {"turns": ("a", "b")}


@pytest.mark.parametrize(
    "names", ["source target", "article summary", "document summary", "src trg", "dialogue summary"]
)
def test_source_and_target(tmp_path, names):
    source, target = names.split()
    (sample,) = rows(tmp_path, "source_target", {source: "long", target: "short"})
    assert (sample.inputs, sample.gold) == ({"source": "long"}, ("short",))


def test_sentences_of_a_source_are_joined_and_targets_kept_apart(tmp_path):
    (sample,) = rows(tmp_path, "source_target", {"source": ["One.", "Two."], "target": ["a", "b"]})
    assert (sample.inputs["source"], sample.gold) == ("One. Two.", ("a", "b"))
    assert (
        rows(tmp_path, "source_target", {"source": ["一。", "二。"], "target": "a"})[0].inputs["source"] == "一。二。"
    )


def test_wrong_column_names_are_reported_for_every_sample_type(tmp_path):
    for sample_type, setting in [
        ("text", "text"),
        ("pair", "text_b"),
        ("words", "words"),
        ("command", "intent"),
        ("span", "passage"),
        ("choice", "question"),
        ("turns", "turns"),
        ("source_target", "target"),
        ("image", "image"),
    ]:
        row = {
            "text": "a",
            "text_b": "b",
            "label": "x",
            "words": "a",
            "tags": "O",
            "intent": "i",
            "question": "q",
            "passage": "p",
            "answers": ["p"],
            "choices": ["a", "b"],
            "turns": ["a"],
            "source": "s",
            "target": "t",
            "image": "f",
        }
        message = rf"a\.jsonl: data\.{setting}: no column '{setting}z', did you mean {setting}\?"
        with pytest.raises(MeristemError, match=message):
            rows(tmp_path, sample_type, row, **{setting: f"{setting}z"})


def test_labels_may_be_missing_where_they_are_not_required(tmp_path):
    assert rows(tmp_path, "text", {"text": "a"}, gold=False, label="stars")[0].gold is None
    for hidden in ({}, {"label": -1}):
        assert rows(tmp_path, "choice", {"text": "a", "choices": ["a", "b"], **hidden}, gold=False)[0].gold is None
    assert rows(tmp_path, "words", {"words": ["a"]}, gold=False, label="ner")[0].gold is None
    assert rows(tmp_path, "pair", {"text": "a", "text_b": "b", "label": "x"}, gold=False)[0].gold == "x"
