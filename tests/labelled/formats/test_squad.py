"""SQuAD articles, and questions with answers in other formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings

PASSAGE = "Zoë 👍🏽 met Ann in Oslo. Later Ann met Bo."


def articles(folder: Path, *qas: dict[str, Any], passage: str = PASSAGE) -> str:
    path = folder / "squad.json"
    path.write_text(json.dumps({"version": "x", "data": [{"paragraphs": [{"context": passage, "qas": list(qas)}]}]}))
    return str(path)


def load_questions(path: str, **options: object) -> list[Sample]:
    return load_samples(path, DataSettings(**options), "span")


def qa(number: int, *answers: tuple[str, int], **extra_fields: Any) -> dict[str, Any]:
    answer_fields = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": f"q{number}", "question": f"Who {number}?", "answers": answer_fields, **extra_fields}


def test_version_one(tmp_path):
    path = articles(tmp_path, qa(1, ("Ann", PASSAGE.index("Ann")), ("Oslo", PASSAGE.index("Oslo"))))
    (sample,) = load_questions(path)
    assert sample.inputs == {"question": "Who 1?", "passage": PASSAGE, "id": "q1"} and sample.location == f"{path}#q1"
    assert [PASSAGE[start : start + len(text)] for text, start in sample.gold] == ["Ann", "Oslo"]


def test_version_two_has_questions_without_answer(tmp_path):
    path = articles(tmp_path, qa(1, ("Oslo", PASSAGE.index("Oslo")), is_impossible=False), qa(2, is_impossible=True))
    assert [sample.gold for sample in load_questions(path)] == [(("Oslo", PASSAGE.index("Oslo")),), ()]
    with pytest.raises(MeristemError, match=r"squad\.json#q2: no answers, and not marked as impossible"):
        load_questions(articles(tmp_path, qa(1, is_impossible=True), qa(2, is_impossible=False)))
    with pytest.raises(MeristemError, match=r"squad\.json#q1: no answers"):
        load_questions(articles(tmp_path, qa(1)))


def test_offsets_that_do_not_match_are_corrected_or_dropped_and_reported(tmp_path):
    right = PASSAGE.index("Oslo")
    path = articles(tmp_path, qa(1, ("Oslo", right - 3)), qa(2, ("Oslo", right), ("Bo", 0)))
    notices: list[str] = []
    samples = load_samples(path, DataSettings(), "span", notices=notices)
    assert [sample.gold for sample in samples] == [(("Oslo", right),)] * 2
    assert notices == [
        f"answers moved by a few characters to where the passage has them: 1 ({path}#q1)",
        f"answers dropped whose beginning does not match their passage: 1 ({path}#q2)",
    ]


def test_two_occurrences_near_are_not_guessed_between(tmp_path):
    path = articles(tmp_path, qa(1, ("x", 3)), passage="a x bc x d")
    message = r"squad\.json#q1: the answer 'x' is not in the passage at character 3; it is at character 2\n"
    with pytest.raises(MeristemError, match=message):
        load_questions(path)


def test_a_question_whose_answers_are_all_wrong_is_an_error(tmp_path):
    with pytest.raises(MeristemError, match=r"squad\.json#q1: the answer 'Rome' is not in the passage"):
        load_questions(articles(tmp_path, qa(1, ("Rome", 5))))


def test_answers_as_data_sets_and_tables_have_them(tmp_path):
    start = PASSAGE.index("Oslo")
    rows = [
        {"id": "a", "context": PASSAGE, "question": "Where?", "answers": {"text": ["Oslo"], "answer_start": [start]}},
        {"id": "b", "context": PASSAGE, "question": "Why?", "answers": {"text": [], "answer_start": []}},
        {"id": "c", "context": PASSAGE, "question": "Where?", "answers": ["Oslo"]},
        {"id": "d", "context": PASSAGE, "question": "Where?", "answers": [{"text": "Oslo", "start": start}]},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    right = (("Oslo", start),)
    assert [sample.gold for sample in load_questions(str(path))] == [right, (), right, right]
    path = tmp_path / "b.tsv"
    path.write_text(f"question\tpassage\tanswer\tanswer_start\nWhere?\t{PASSAGE}\tOslo\t{start}\n")
    assert load_questions(str(path))[0].gold == right


def test_questions_alone_are_enough_to_predict(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "Where?", "context": PASSAGE}))
    (sample,) = load_samples(str(path), DataSettings(answers="gold"), "span", require_gold=False)
    assert sample.gold is None and sample.inputs["id"] == f"{path}:1"
