"""Rows that cannot be used are all counted and listed at once, or left out where that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from meristem.errors import MeristemError
from meristem.labelled.reading import splits
from meristem.labelled.settings import DataSettings


def put(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def table(path: Path) -> str:
    rows = [f"text number {n}\t{'' if n % 5 == 0 else n % 2}" for n in range(40)]
    rows[3] = "one\ttwo\tthree\tfour"
    return put(path, "\n".join(["text\tlabel", *rows]) + "\n")


def test_one_error_tells_of_all_rows(tmp_path):
    path = table(tmp_path / "a.tsv")
    with pytest.raises(MeristemError) as told:
        splits(DataSettings(train=path), "text")
    lines = str(told.value).splitlines()
    assert lines[0] == "data.train: 9 of 40 rows cannot be used:"
    assert lines[1] == f"  {path}:2: no label in the column 'label'; give it one or take the line out"
    assert lines[2] == f"  {path}:5: 4 cells, but the first line names 2 columns"
    assert lines[6] == (
        "  and 4 more; in all: 8 no label in the column 'label', 1 N cells, but the first line names N columns"
    )
    assert lines[7] == "Mend them, or leave them out with data.skip_bad=true"


def test_they_are_left_out_where_that_is_asked_for(tmp_path):
    found = splits(DataSettings(train=table(tmp_path / "a.tsv"), skip_bad=True, held_out=0), "text")
    assert len(found.samples["train"]) == 31
    said = "\n".join(found.notices)
    assert "left out of train (data.skip_bad), no label in the column 'label': 8 (" in said
    assert "N cells, but the first line names N columns: 1 (" in said


def test_broken_json_is_one_reason_and_no_row_at_all_stays_an_error(tmp_path):
    good = '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n'
    path = put(tmp_path / "a.jsonl", '{"text": "a", "lab\n[1]\n{"text": \n' + good)
    found = splits(DataSettings(train=path, skip_bad=True, held_out=0), "text")
    assert len(found.samples["train"]) == 2
    assert any(line.startswith("left out of train (data.skip_bad), broken JSON: 2 (") for line in found.notices)
    path = put(tmp_path / "b.jsonl", '{"text": \n')
    with pytest.raises(MeristemError, match="1 of 1 rows cannot be used"):
        splits(DataSettings(train=path, skip_bad=True), "text")
