"""Excel workbooks as labelled data: cells as openpyxl writes them, and damaged or hostile files."""

from __future__ import annotations

import datetime
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from meristem.config.errors import MeristemError
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings

ROWS: list[list[Any]] = [
    ["text", "label", "stars", "day"],
    ["The boat sailed, and came\nback.", "good", 5, datetime.date(2024, 5, 1)],
    [None, None, None, None],
    ["It sank 😀", "bad", 1.5, None],
    [42, True, 2.0, None],
]


def write_book(path: Path, rows: list[list[Any]], other_sheet: bool = False) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    if other_sheet:
        book.create_sheet("more").append(["text", "label"])
    book.save(path)
    return path


def load(path: Path, **settings: Any) -> tuple[list[Any], list[str]]:
    notices: list[str] = []
    return load_samples(str(path), DataSettings().model_copy(update=settings), "text", notices=notices), notices


def test_rows_with_their_numbers_and_types(tmp_path: Path) -> None:
    path = write_book(tmp_path / "a.xlsx", ROWS, other_sheet=True)
    samples, notices = load(path)
    assert [(sample.inputs["text"], sample.gold) for sample in samples] == [
        ("The boat sailed, and came\nback.", "good"),
        ("It sank 😀", "bad"),
        ("42", "true"),
    ]
    assert [sample.location for sample in samples] == [f"{path}#2", f"{path}#4", f"{path}#5"]
    assert any("2 sheets; the first, 'Sheet', is read" in notice for notice in notices)
    assert load(path, label="stars")[0][2].gold == 2


def test_a_sheet_without_a_header(tmp_path: Path) -> None:
    path = write_book(tmp_path / "a.xlsx", [["fine day", "x"], ["rainy day", "y"], ["dull day", "x"]])
    samples, _ = load(path, text="1", label="2")
    assert [sample.gold for sample in samples] == ["x", "y", "x"]


def test_a_row_with_too_many_cells_is_named(tmp_path: Path) -> None:
    path = write_book(tmp_path / "a.xlsx", [["text", "label"], ["a b", "x"], ["c d", "y", "z"]])
    with pytest.raises(MeristemError, match="#3: 3 cells, but the header has 2 columns"):
        load(path)


def test_damaged_and_hostile_files_are_one_sentence(tmp_path: Path) -> None:
    good = write_book(tmp_path / "good.xlsx", ROWS)
    (tmp_path / "text.xlsx").write_text("text,label\n")
    (tmp_path / "cut.xlsx").write_bytes(good.read_bytes()[:2000])
    with zipfile.ZipFile(tmp_path / "other.xlsx", "w") as archive:
        archive.writestr("a.txt", "x")
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(tmp_path / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
        archive.writestr("xl/media/zeros.bin", b"\0" * (64 << 20))
    entity = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(tmp_path / "entity.xlsx", "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            is_sheet = name == "xl/worksheets/sheet1.xml"
            archive.writestr(name, b"<?xml version='1.0'?>" + entity.encode() + content if is_sheet else content)
    reasons = {
        "text": "is not an Excel workbook",
        "cut": "damaged Excel file",
        "other": "is not an Excel workbook",
        "bomb": "unpacks to more than 100 times its size",
        "entity": "damaged Excel file",
    }
    for name, reason in reasons.items():
        with pytest.raises(MeristemError, match=reason) as error:
            load(tmp_path / f"{name}.xlsx")
        assert f"{name}.xlsx" in str(error.value)
