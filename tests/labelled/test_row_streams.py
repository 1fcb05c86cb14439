"""Where the readers of corpus and labelled data disagreed: what holds for both now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.data.formats import lines
from meristem.labelled.load import load_samples, load_splits
from meristem.labelled.settings import DataSettings


def test_a_row_longer_than_the_rows_before_is_an_error_without_a_header_too(tmp_path: Path) -> None:
    rows = [f"a text of number {number}\t{number % 2}" for number in range(1100)]
    (tmp_path / "a.tsv").write_text("\n".join([*rows, "a tab\tinside\t1"]))
    with pytest.raises(MeristemError, match=r"a\.tsv:1101: 3 cells, but the rows before have 2"):
        load_samples(str(tmp_path / "a.tsv"), DataSettings(text="1", label="2", header=False), "text")


def test_a_line_too_long_is_a_bad_row_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_CHARS", 1_000_000)
    row = '{"text": "%s", "label": "x"}'
    (tmp_path / "a.jsonl").write_text("\n".join([row % "one", row % ("y" * 1_000_001), row % "three"]))
    with pytest.raises(MeristemError, match=r"1 of 3 rows are invalid:\n.*a\.jsonl:2: a line of more than 1 million"):
        load_samples(str(tmp_path / "a.jsonl"), DataSettings(), "text")
    splits = load_splits(DataSettings(train=f"{tmp_path}/a.jsonl", skip_bad=True, held_out=0), "text")
    assert [sample.inputs["text"] for sample in splits.samples["train"]] == ["one", "three"]


def test_damaged_places_are_noticed_at_the_end_of_the_file(tmp_path: Path) -> None:
    data = b"text\tlabel\n" + b"one caf\xc3\xa9 more\tx\n" * 80_000 + b"bad \xff byte\ty\n"
    (tmp_path / "a.tsv").write_bytes(data)
    notices: list[str] = []
    load_samples(str(tmp_path / "a.tsv"), DataSettings(), "text", notices=notices)
    assert notices == [f"{tmp_path}/a.tsv: 1 places that are no UTF-8; replaced by U+FFFD"]


def test_markdown_is_plain_text(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("first prompt\nsecond prompt\n")
    samples = load_samples(str(tmp_path / "a.md"), DataSettings(), "prompt")
    assert [sample.inputs["prompt"] for sample in samples] == ["first prompt", "second prompt"]


def test_a_single_column_keeps_its_delimiters_as_corpus_too(tmp_path: Path, read_corpus: Any) -> None:
    (tmp_path / "a.csv").write_text("text\nBread, and butter\nMilk,\nplain\n")
    texts = ["Bread, and butter", "Milk,", "plain"]
    assert [document.text for document in read_corpus(tmp_path / "a.csv", validation=0, test=0)[0]] == texts
    samples = load_samples(str(tmp_path / "a.csv"), DataSettings(), "text", require_gold=False)
    assert [sample.inputs["text"] for sample in samples] == texts
