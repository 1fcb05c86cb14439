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


def read_pairs(source: Path | str, **options: Any) -> tuple[list[Document], CorpusReader]:
    corpus_reader = CorpusReader(CorpusSettings(source=str(source), **{"processes": 1, **options}))
    return list(corpus_reader), corpus_reader


@settings(max_examples=80, deadline=None)
@given(st.text(), st.text())
def test_sides_come_back_as_they_went_but_for_marks(source: str, target: str) -> None:
    paired = join_pair(source, target, PAIR_SEPARATOR, "a:1")
    assert isinstance(paired, Document)
    without_separators = [text.replace(PAIR_SEPARATOR, "").replace(IMAGE_SEPARATOR, "") for text in (source, target)]
    assert split_pair(paired.text) == PairedText(without_separators[0], without_separators[1], PAIR_SEPARATOR)
    assert list(tokenizer_texts(paired.text)) == without_separators


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
    documents, corpus_reader = read_pairs(file, text="en", target="de", validation=0, test=0)
    assert [split_pair(document.text)[:2] for document in documents] == [
        ("one", "eins"),
        ("four", "vier"),
        ("four", "4"),
    ]
    account = corpus_reader.account
    assert account.dropped == {"empty": 2, "duplicate": 1}
    assert account.kinds == {"pairs": 3}
    assert account.characters == len("oneeinsfourvierfour4")
    assert "3 kept (pairs)" in account.summary()
    assert account.repaired["strip controls"] == 1


def test_marks_in_plain_text_are_controls_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": f"one{PAIR_SEPARATOR}two{IMAGE_SEPARATOR}three"}))
    (document,), corpus_reader = read_pairs(tmp_path / "a.jsonl", validation=0, test=0)
    assert document.text == "onetwothree"
    assert corpus_reader.account.repaired["strip controls"] == 1


def test_all_that_belongs_to_one_source_is_held_out_together(tmp_path: Path) -> None:
    all_pairs = [(f"source {number % 700}", f"target {number}") for number in range(2100)]
    for pairs in (all_pairs, all_pairs[:600] + all_pairs[700:1300]):  # by hash, and by quota
        documents, _ = read_pairs(
            pairs_file(tmp_path / "a.jsonl", pairs), text="en", target="de", validation=0.1, test=0.1
        )
        splits: dict[str, set[str]] = {}
        for document in documents:
            splits.setdefault(split_pair(document.text).source, set()).add(document.split)
        assert len(documents) == len(pairs)
        assert all(len(names) == 1 for names in splits.values())
        assert {name for names in splits.values() for name in names} == {"train", "validation", "test"}


def test_the_digest_follows_the_target_and_plain_text_keeps_its_key(tmp_path: Path) -> None:
    file = pairs_file(tmp_path / "a.jsonl", [("a", "b")])
    plain = CorpusSettings(source=str(file), text="en")
    kinds = [plain, plain.model_copy(update={"target": "de"}), plain.model_copy(update={"image": "de"})]
    assert len({corpus_digest(kind) for kind in kinds}) == 3
    assert [kind.side_separator for kind in kinds] == ["", PAIR_SEPARATOR, IMAGE_SEPARATOR]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "a", "image": "b"}, "cannot be combined in one corpus"),
        ({"source": ("a", "b", "c"), "target": ("a", "b")}, "target names 2 files for 3 sources"),
    ],
)
def test_impossible_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CorpusSettings(**options)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("builtin:pydocs", {"target": "de"}, "builtin:pydocs: corpus.target is a column of jsonl"),
        (
            "builtin:pydocs",
            {"image": "file"},
            "builtin:pydocs: corpus.image is a column of a jsonl, csv or tsv file",
        ),
        ("{}/a.txt", {"image": "file"}, "corpus.image is a column of"),
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
def test_what_has_no_other_side_is_refused(tmp_path: Path, source: Any, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    source = source.format(tmp_path) if isinstance(source, str) else tuple(source)
    with pytest.raises(MeristemError, match=message):
        list(CorpusReader(CorpusSettings(source=source, **options)))


def test_builtin_pairs_and_pictures_are_read() -> None:
    documents, corpus_reader = read_pairs("builtin:microworld-pairs?size=40")
    assert all(split_pair(document.text).separator == PAIR_SEPARATOR for document in documents)
    assert corpus_reader.account.kinds == {"pairs": len(documents)}
    documents, corpus_reader = read_pairs("builtin:microworld-pictures?size=40&language=zh")
    assert len({split_pair(document.text).source for document in documents}) == 40 == corpus_reader.account.kept
    assert corpus_reader.account.characters == sum(len(split_pair(document.text).target) for document in documents)


def test_the_command_writes_what_can_be_read_again(tmp_path: Path) -> None:
    file = pairs_file(tmp_path / "a.jsonl", [(f"source {n}", f"target {n}") for n in range(30)])
    corpus_report = run_corpus_command(
        str(file), ["corpus.text=en", "corpus.target=de"], Console(quiet=True), out=tmp_path / "out"
    )
    console = Console(record=True, width=100, file=(tmp_path / "screen").open("w"))
    console.print(corpus_report.account.table())
    assert "pairs" in console.export_text()
    reread, _ = read_pairs(tmp_path / "out" / "train.jsonl", text="source", target="target")
    before, _ = read_pairs(file, text="en", target="de")
    assert {d.text for d in reread} == {d.text for d in before if d.split == "train"}
