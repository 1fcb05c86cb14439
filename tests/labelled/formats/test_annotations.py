"""Exports of Label Studio and Doccano as labelled data: spans by offset, choices, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings

TEXT = "Ada Lovelace wrote 😀 to London."


def samples(path: Path, sample_type: str = "words", **settings: Any) -> list[Any]:
    return load_samples(str(path), DataSettings().model_copy(update=settings), sample_type)


def task(text: str, results: list[dict[str, Any]], **annotation: Any) -> dict[str, Any]:
    return {"id": 1, "data": {"text": text}, "annotations": [{"id": 7, "result": results, **annotation}]}


def labelled_span(start: int, end: int, label: str, text: str | None = None) -> dict[str, Any]:
    value = {"start": start, "end": end, "labels": [label], **({} if text is None else {"text": text})}
    return {"from_name": "label", "to_name": "text", "type": "labels", "value": value}


def write(path: Path, rows: list[Any]) -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


EXPECTED = {"Ada": "B-PER", "Lovelace": "I-PER", "London": "B-LOC"}


def test_label_studio_spans_become_words_with_tags(tmp_path: Path) -> None:
    london = TEXT.index("London")
    # the emoji is two units in a browser, so offsets after it are one larger there
    spans = [labelled_span(0, 12, "PER", "Ada Lovelace"), labelled_span(london + 1, london + 7, "LOC", "London")]
    path = write(tmp_path / "export.json", [task(TEXT, spans), task("No names here", [labelled_span(0, 2, "X")])])
    first, second = samples(path)
    assert dict(zip(first.inputs["words"], first.gold, strict=True)) == {
        **dict.fromkeys(first.inputs["words"], "O"), **EXPECTED
    }  # fmt: skip
    assert first.inputs["text"] == TEXT
    assert [TEXT[start:end] for start, end in first.inputs["offsets"]] == list(first.inputs["words"])
    assert second.gold == ("B-X", "O", "O")


def test_label_studio_min_and_choices(tmp_path: Path) -> None:
    spans = [{"start": 0, "end": 12, "text": "Ada Lovelace", "labels": ["PER"]}]
    row = {"id": 1, "text": TEXT, "label": spans, "annotator": 1, "annotation_id": 2}
    (sample,) = samples(write(tmp_path / "min.json", [row]))
    assert sample.gold[:3] == ("B-PER", "I-PER", "O")
    choice = {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["Positive"]}}
    cancelled = {"id": 8, "result": [], "was_cancelled": True}
    rows = [task("good", [choice]), task("fine", [choice])]
    rows[0]["annotations"].insert(0, cancelled)
    first, _ = samples(write(tmp_path / "choices.json", rows), "text")
    assert (first.inputs["text"], first.gold) == ("good", "Positive")


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "text": TEXT, "label": [[0, 12, "PER"], [24, 30, "LOC"]]},
        {"id": 1, "text": TEXT, "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 12},
                                             {"id": 2, "label": "LOC", "start_offset": 24, "end_offset": 30}],
         "relations": []},
    ],
)  # fmt: skip
def test_doccano_spans_become_words_with_tags(row: dict[str, Any], tmp_path: Path) -> None:
    assert TEXT[24:30] == "London"
    sample, empty = samples(write(tmp_path / "admin.jsonl", [row, {"id": 2, "text": "nothing", "label": []}]))
    tags = dict(zip(sample.inputs["words"], sample.gold, strict=True))
    assert {word: tag for word, tag in tags.items() if tag != "O"} == EXPECTED
    assert empty.gold == ("O",)


def test_a_word_is_cut_where_a_span_ends_and_chinese_needs_no_spaces(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "text": "Londoners", "label": [[0, 6, "LOC"]]},
        {"id": 2, "text": "张三在北京", "label": [[0, 2, "PER"], [3, 5, "LOC"]]},
    ]
    cut, chinese = samples(write(tmp_path / "a.jsonl", rows))
    assert (cut.inputs["words"], cut.gold) == (("London", "ers"), ("B-LOC", "O"))
    assert (chinese.inputs["words"], chinese.gold) == (
        ("张", "三", "在", "北", "京"),
        ("B-PER", "I-PER", "O", "B-LOC", "I-LOC"),
    )


def test_doccano_labels_of_a_text(tmp_path: Path) -> None:
    rows = [{"id": 1, "text": "good", "label": ["pos"]}, {"id": 2, "text": "bad", "label": ["neg"]}]
    first, _ = samples(write(tmp_path / "a.jsonl", rows), "text", format="doccano")
    assert first.gold == "pos"


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([[0, 99, "PER"]], "span PER from 0 to 99 is not in a text of 31 characters"),
        ([[5, 5, "PER"]], "span PER from 5 to 5 is not in"),
        ([[0, 12, "PER"], [4, 12, "LAST"]], "overlap, and a word has one tag"),
        ([[3, 4, "PER"]], "has only white space"),
        ([[0, 3, 5]], "a span needs start, end and label"),
    ],
)
def test_a_wrong_span_is_named_with_its_line(spans: list[Any], reason: str, tmp_path: Path) -> None:
    good = {"id": 1, "text": TEXT, "label": [[0, 3, "PER"]]}
    path = write(tmp_path / "a.jsonl", [good, {"id": 2, "text": TEXT, "label": spans}])
    with pytest.raises(MeristemError, match=reason) as error:
        samples(path)
    assert f"{path}:2: " in str(error.value)


def test_offsets_that_do_not_fit_their_text_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [task(TEXT, [labelled_span(1, 13, "PER", "Ada Lovelace")])])
    with pytest.raises(MeristemError, match=r"#1: span PER from 1 to 13 is 'da Lovelace ', but should be"):
        samples(path)
    broken = write(tmp_path / "b.json", [{"data": {"n": 3}, "annotations": [{"result": [labelled_span(0, 1, "A")]}]}])
    with pytest.raises(MeristemError, match="#1: a task without a text"):
        samples(broken)
