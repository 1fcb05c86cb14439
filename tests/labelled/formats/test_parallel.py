"""Two files, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from meristem.errors import MeristemError
from meristem.labelled.reading import read, splits
from meristem.labelled.settings import DataSettings


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(text, encoding="utf-8")


def test_lines_belong_together_and_the_other_side_is_found(tmp_path):
    put(tmp_path, train_en="a dog\na cat\n", train_de="ein Hund\neine Katze\n", val_en="a man\n", val_de="ein Mann\n")
    data = DataSettings(train=f"{tmp_path}/train.en", target=f"{tmp_path}/train.de", validation=f"{tmp_path}/val.en")
    found = splits(data, "written").samples
    assert [(one.given, one.gold, one.place) for one in found["train"]] == [
        ({"source": "a dog"}, ("ein Hund",), f"{tmp_path}/train.en:1"),
        ({"source": "a cat"}, ("eine Katze",), f"{tmp_path}/train.en:2"),
    ]
    assert found["validation"][0].gold == ("ein Mann",)
    put(tmp_path, other_de="der Mann\n")
    set_for = data.model_copy(update={"validation_target": f"{tmp_path}/other.de"})
    assert splits(set_for, "written").samples["validation"][0].gold == ("der Mann",)


def test_unequal_files_are_refused_with_both_counts(tmp_path):
    put(tmp_path, a_en="1\n2\n3\n", a_de="1\n2\n3\n4\n5\n")
    with pytest.raises(
        MeristemError, match=r"a\.en has 3 lines and .*a\.de has 5: .*a\.de:4 is the first without a partner"
    ):
        splits(DataSettings(train=f"{tmp_path}/a.en", target=f"{tmp_path}/a.de"), "written")


def test_an_empty_line_on_one_side_is_dropped_and_named(tmp_path):
    put(tmp_path, a_en="one\n\nthree\nfour\n", a_de="eins\nzwei\n \nvier\n")
    found = splits(DataSettings(train=f"{tmp_path}/a.en", target=f"{tmp_path}/a.de", held_out=0), "written")
    assert [one.given["source"] for one in found.samples["train"]] == ["one", "four"]
    assert found.notices == [
        f"dropped from train, empty source: 1 ({tmp_path}/a.en:2)",
        f"dropped from train, empty target: 1 ({tmp_path}/a.en:3)",
    ]


def test_a_missing_target_is_told(tmp_path):
    put(tmp_path, a_en="one\n")
    with pytest.raises(MeristemError, match=r"data\.target: no such file"):
        splits(DataSettings(train=f"{tmp_path}/a.en", target=f"{tmp_path}/a.de"), "written")
    with pytest.raises(MeristemError, match=r"a\.en: no columns in this file; give data\.target=FILE"):
        splits(DataSettings(train=f"{tmp_path}/a.en"), "written")


def test_several_sources_each_have_their_own_other_side(tmp_path):
    put(tmp_path, a_en="one\n", a_de="eins\n", b_en="two\nthree\n", b_de="zwei\ndrei\n")
    both = (f"{tmp_path}/a.en", f"{tmp_path}/b.en")
    found = splits(DataSettings(train=both, target=f"{tmp_path}/a.de", held_out=0), "written").samples["train"]
    assert [one.gold for one in found] == [("eins",), ("zwei",), ("drei",)]


def test_sources_alone_are_enough_to_predict(tmp_path):
    put(tmp_path, a_en="one\ntwo\n")
    found = read(f"{tmp_path}/a.en", DataSettings(target="elsewhere/train.de"), "written", gold=False)
    assert [(one.given["source"], one.gold) for one in found] == [("one", None), ("two", None)]
