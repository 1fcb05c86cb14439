"""Documents with two sides: each side is cleaned, splits follow the source, and plain text is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.corpus.corpus_command import run_corpus_command
from meristem.corpus.document import Document, Drop
from meristem.corpus.paired_text import (
    IMAGE_SEPARATOR,
    PAIR_SEPARATOR,
    PairedText,
    document_keys,
    join_pair,
    split_pair,
    tokenizer_texts,
)
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import corpus_digest
from meristem.data.text_units import MAX_TEXT_CHARS


def pairs_file(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in pairs), encoding="utf-8")
    return path


def read(source: Path | str, **options: Any) -> tuple[list[Document], CorpusReader]:
    corpus_reader = CorpusReader(CorpusSettings(source=str(source), **{"processes": 1, **options}))
    return list(corpus_reader), corpus_reader


@settings(max_examples=80, deadline=None)
@given(st.text(), st.text())
def test_sides_come_back_as_they_went_but_for_marks(source: str, target: str) -> None:
    whole = join_pair(source, target, PAIR_SEPARATOR, "a:1")
    assert isinstance(whole, Document)
    bare = [text.replace(PAIR_SEPARATOR, "").replace(IMAGE_SEPARATOR, "") for text in (source, target)]
    assert split_pair(whole.text) == PairedText(bare[0], bare[1], PAIR_SEPARATOR)
    assert list(tokenizer_texts(whole.text)) == bare


def test_plain_text_has_one_side() -> None:
    assert split_pair("a text") == PairedText("", "a text", "")
    assert list(tokenizer_texts("a text")) == ["a text"]
    picture = join_pair("abc some/picture.png", "a caption", IMAGE_SEPARATOR, "a:1")
    assert isinstance(picture, Document)
    assert list(tokenizer_texts(picture.text)) == ["a caption"]
    assert document_keys(picture) == (f"abc{IMAGE_SEPARATOR}a caption", "abc")
    assert join_pair("a" * MAX_TEXT_CHARS, "b", PAIR_SEPARATOR, "a:1") == Drop("too long")


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
    assert [split_pair(document.text)[:2] for document in found] == [("one", "eins"), ("four", "vier"), ("four", "4")]
    account = reading.account
    assert account.dropped == {"empty": 2, "duplicate": 1}
    assert account.kinds == {"pairs": 3}
    assert account.characters == len("oneeinsfourvierfour4")
    assert "3 kept (pairs)" in account.summary()
    assert account.repaired["strip controls"] == 1


def test_marks_in_plain_text_are_controls_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": f"one{PAIR_SEPARATOR}two{IMAGE_SEPARATOR}three"}))
    (document,), reading = read(tmp_path / "a.jsonl", validation=0, test=0)
    assert document.text == "onetwothree"
    assert reading.account.repaired["strip controls"] == 1


def test_all_that_belongs_to_one_source_is_held_out_together(tmp_path: Path) -> None:
    many = [(f"source {number % 700}", f"target {number}") for number in range(2100)]
    for pairs in (many, many[:600] + many[700:1300]):  # by hash, and by quota
        found, _ = read(pairs_file(tmp_path / "a.jsonl", pairs), text="en", target="de", validation=0.1, test=0.1)
        splits: dict[str, set[str]] = {}
        for document in found:
            splits.setdefault(split_pair(document.text).source, set()).add(document.split)
        assert len(found) == len(pairs)
        assert all(len(names) == 1 for names in splits.values())
        assert {name for names in splits.values() for name in names} == {"train", "validation", "test"}


def test_the_digest_follows_the_target_and_plain_text_keeps_its_key(tmp_path: Path) -> None:
    file = pairs_file(tmp_path / "a.jsonl", [("a", "b")])
    plain = CorpusSettings(source=str(file), text="en")
    kinds = [plain, plain.model_copy(update={"target": "de"}), plain.model_copy(update={"picture": "de"})]
    assert len({corpus_digest(kind) for kind in kinds}) == 3
    assert [kind.side_separator for kind in kinds] == ["", PAIR_SEPARATOR, IMAGE_SEPARATOR]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "a", "picture": "b"}, "cannot be combined in one corpus"),
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
        (
            "{}/a.txt",
            {"target": "b.txt"},
            "its target must be a file with one line for each of its lines; no such file",
        ),
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
        list(CorpusReader(CorpusSettings(source=source, **options)))


def test_builtin_pairs_and_pictures_are_read() -> None:
    found, reading = read("builtin:microworld-pairs?size=40")
    assert all(split_pair(document.text).separator == PAIR_SEPARATOR for document in found)
    assert reading.account.kinds == {"pairs": len(found)}
    found, reading = read("builtin:microworld-pictures?size=40&language=zh")
    assert len({split_pair(document.text).source for document in found}) == 40 == reading.account.kept
    assert reading.account.characters == sum(len(split_pair(document.text).target) for document in found)


def test_the_command_writes_what_can_be_read_again(tmp_path: Path) -> None:
    file = pairs_file(tmp_path / "a.jsonl", [(f"source {n}", f"target {n}") for n in range(30)])
    told = run_corpus_command(
        str(file), ["corpus.text=en", "corpus.target=de"], Console(quiet=True), out=tmp_path / "out"
    )
    console = Console(record=True, width=100, file=(tmp_path / "screen").open("w"))
    console.print(told.account.table())
    assert "pairs" in console.export_text()
    again, _ = read(tmp_path / "out" / "train.jsonl", text="source", target="target")
    before, _ = read(file, text="en", target="de")
    assert {d.text for d in again} == {d.text for d in before if d.split == "train"}
