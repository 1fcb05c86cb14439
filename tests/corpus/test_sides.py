"""Documents with two sides: cleaned side by side, held out by what is given, and never mistaken for plain text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console

from meristem.corpus.command import report
from meristem.corpus.document import LONGEST, Document, Drop
from meristem.corpus.reading import Reading
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PAIR, PICTURE, Sides, identity, joined, sides, words
from meristem.corpus.sources import digest
from meristem.errors import MeristemError


def pairs_file(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in pairs), encoding="utf-8")
    return path


def read(source: Path | str, **options: Any) -> tuple[list[Document], Reading]:
    reading = Reading(CorpusSettings(source=str(source), **{"processes": 1, **options}))
    return list(reading), reading


@settings(max_examples=80, deadline=None)
@given(st.text(), st.text())
def test_sides_come_back_as_they_went_but_for_marks(source: str, target: str) -> None:
    whole = joined(source, target, PAIR, "a:1")
    assert isinstance(whole, Document)
    bare = [text.replace(PAIR, "").replace(PICTURE, "") for text in (source, target)]
    assert sides(whole.text) == Sides(bare[0], bare[1], PAIR)
    assert list(words(whole.text)) == bare


def test_plain_text_has_one_side() -> None:
    assert sides("a text") == Sides("", "a text", "")
    assert list(words("a text")) == ["a text"]
    picture = joined("abc some/picture.png", "a caption", PICTURE, "a:1")
    assert isinstance(picture, Document)
    assert list(words(picture.text)) == ["a caption"]
    assert identity(picture) == (f"abc{PICTURE}a caption", "abc")
    assert joined("a" * LONGEST, "b", PAIR, "a:1") == Drop("too long")


def test_each_side_is_cleaned_and_an_empty_side_drops_the_pair(tmp_path: Path) -> None:
    file = pairs_file(
        tmp_path / "a.jsonl",
        [
            ("  one\x00 \r\n", "ei\x1ens "),
            ("two", " \n"),
            ("", "drei"),
            ("four", "vier"),
            ("four", "vier"),
            ("four", "4"),
        ],
    )
    found, reading = read(file, text="en", target="de", validation=0, test=0)
    assert [sides(document.text)[:2] for document in found] == [("one", "eins"), ("four", "vier"), ("four", "4")]
    account = reading.account
    assert account.dropped == {"empty": 2, "duplicate": 1}
    assert account.kinds == {"pairs": 3}
    assert account.characters == len("oneeinsfourvierfour4")
    assert "3 kept (pairs)" in account.summary()
    assert account.repaired["strip controls"] == 1


def test_marks_in_plain_text_are_controls_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": f"one{PAIR}two{PICTURE}three"}))
    (document,), reading = read(tmp_path / "a.jsonl", validation=0, test=0)
    assert document.text == "onetwothree"
    assert reading.account.repaired["strip controls"] == 1


def test_all_that_belongs_to_one_source_is_held_out_together(tmp_path: Path) -> None:
    many = [(f"source {number % 700}", f"target {number}") for number in range(2100)]
    for pairs in (many, many[:600] + many[700:1300]):  # by hash, and by quota
        found, _ = read(pairs_file(tmp_path / "a.jsonl", pairs), text="en", target="de", validation=0.1, test=0.1)
        splits: dict[str, set[str]] = {}
        for document in found:
            splits.setdefault(sides(document.text).given, set()).add(document.split)
        assert len(found) == len(pairs)
        assert all(len(names) == 1 for names in splits.values())
        assert {name for names in splits.values() for name in names} == {"train", "validation", "test"}


def test_the_digest_follows_the_target_and_plain_text_keeps_its_key(tmp_path: Path) -> None:
    file = pairs_file(tmp_path / "a.jsonl", [("a", "b")])
    plain = CorpusSettings(source=str(file), text="en")
    kinds = [plain, plain.model_copy(update={"target": "de"}), plain.model_copy(update={"picture": "de"})]
    assert len({digest(one) for one in kinds}) == 3
    assert [one.mark for one in kinds] == ["", PAIR, PICTURE]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "a", "picture": "b"}, "a text belongs to one or the other"),
        ({"source": ("a", "b", "c"), "target": ("a", "b")}, "target names 2 files for 3 sources"),
    ],
)
def test_impossible_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        CorpusSettings(**options)


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("builtin:pydocs", {"target": "de"}, "builtin:pydocs: corpus.target is a column of jsonl"),
        (
            "builtin:pydocs",
            {"picture": "file"},
            "builtin:pydocs: corpus.picture is a column of a jsonl, csv or tsv file",
        ),
        ("{}/a.txt", {"picture": "file"}, "corpus.picture is a column of"),
        ("{}", {"target": "de"}, "corpus.target is a column of"),
        ("{}/a.txt", {"target": "b.txt"}, "its target is a file with a line for each of its lines; no such file"),
        (
            ["builtin:microworld-pairs", "builtin:microworld-en"],
            {},
            "are pairs and text; give each its own entry in mix",
        ),
        (["builtin:microworld-pairs", "builtin:microworld-pictures"], {}, "are pairs and pictures"),
    ],
)
def test_what_has_no_other_side_is_refused(tmp_path: Path, source: Any, options: dict[str, Any], says: str) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    source = source.format(tmp_path) if isinstance(source, str) else tuple(source)
    with pytest.raises(MeristemError, match=says):
        list(Reading(CorpusSettings(source=source, **options)))


def test_builtin_pairs_and_pictures_are_read() -> None:
    found, reading = read("builtin:microworld-pairs?size=40")
    assert all(sides(document.text).mark == PAIR for document in found)
    assert reading.account.kinds == {"pairs": len(found)}
    found, reading = read("builtin:microworld-pictures?size=40&language=zh")
    assert len({sides(document.text).given for document in found}) == 40 == reading.account.kept
    assert reading.account.characters == sum(len(sides(document.text).told) for document in found)


def test_the_command_writes_what_can_be_read_again(tmp_path: Path) -> None:
    file = pairs_file(tmp_path / "a.jsonl", [(f"source {n}", f"target {n}") for n in range(30)])
    told = report(str(file), ["corpus.text=en", "corpus.target=de"], Console(quiet=True), out=tmp_path / "out")
    console = Console(record=True, width=100, file=(tmp_path / "screen").open("w"))
    console.print(told.account.table())
    assert "pairs" in console.export_text()
    again, _ = read(tmp_path / "out" / "train.jsonl", text="source", target="target")
    before, _ = read(file, text="en", target="de")
    assert {d.text for d in again} == {d.text for d in before if d.split == "train"}
