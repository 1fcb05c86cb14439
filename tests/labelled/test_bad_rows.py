"""Invalid rows: one error lists and counts all of them, or they are skipped with data.skip_bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from meristem.config.errors import MeristemError
from meristem.labelled.load import load_splits
from meristem.labelled.settings import DataSettings


def write_file(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def table(path: Path) -> str:
    rows = [f"text number {n}\t{'' if n % 5 == 0 else n % 2}" for n in range(40)]
    rows[3] = "one\ttwo\tthree\tfour"
    return write_file(path, "\n".join(["text\tlabel", *rows]) + "\n")


def test_one_error_reports_all_invalid_rows(tmp_path):
    path = table(tmp_path / "a.tsv")
    with pytest.raises(MeristemError) as error:
        load_splits(DataSettings(train=path), "text")
    lines = str(error.value).splitlines()
    assert lines[0] == "data.train: 9 of 40 rows are invalid:"
    assert lines[1] == f"  {path}:2: no label in column 'label'; add it or remove the row"
    assert lines[2] == f"  {path}:5: 4 cells, but the header has 2 columns"
    assert lines[6] == (
        "  and 4 more; by reason: 8 no label in column 'label', 1 N cells, but the header has N columns"
    )
    assert lines[7] == "Fix these rows, or skip them with data.skip_bad=true"


def test_invalid_rows_are_skipped_on_request(tmp_path):
    splits = load_splits(DataSettings(train=table(tmp_path / "a.tsv"), skip_bad=True, held_out=0), "text")
    assert len(splits.samples["train"]) == 31
    notices = "\n".join(splits.notices)
    assert "skipped in train (data.skip_bad), no label in column 'label': 8 (" in notices
    assert "N cells, but the header has N columns: 1 (" in notices


def test_broken_json_is_one_reason_and_a_file_without_valid_rows_stays_an_error(tmp_path):
    good = '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n'
    path = write_file(tmp_path / "a.jsonl", '{"text": "a", "lab\n[1]\n{"text": \n' + good)
    splits = load_splits(DataSettings(train=path, skip_bad=True, held_out=0), "text")
    assert len(splits.samples["train"]) == 2
    assert any(line.startswith("skipped in train (data.skip_bad), broken JSON: 2 (") for line in splits.notices)
    path = write_file(tmp_path / "b.jsonl", '{"text": \n')
    with pytest.raises(MeristemError, match="1 of 1 rows are invalid"):
        load_splits(DataSettings(train=path, skip_bad=True), "text")
