"""Parallel text: two line-aligned files."""

from __future__ import annotations

from pathlib import Path

import pytest

from meristem.config.errors import MeristemError
from meristem.labelled.load import load_samples, load_splits
from meristem.labelled.settings import DataSettings


def write_file(folder: Path, **files: str) -> None:
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(text, encoding="utf-8")


def test_lines_are_paired_and_the_target_of_other_splits_is_found(tmp_path):
    write_file(
        tmp_path, train_en="a dog\na cat\n", train_de="ein Hund\neine Katze\n", val_en="a man\n", val_de="ein Mann\n"
    )
    data = DataSettings(train=f"{tmp_path}/train.en", target=f"{tmp_path}/train.de", validation=f"{tmp_path}/val.en")
    samples_by_split = load_splits(data, "source_target").samples
    assert [(sample.inputs, sample.gold, sample.location) for sample in samples_by_split["train"]] == [
        ({"source": "a dog"}, ("ein Hund",), f"{tmp_path}/train.en:1"),
        ({"source": "a cat"}, ("eine Katze",), f"{tmp_path}/train.en:2"),
    ]
    assert samples_by_split["validation"][0].gold == ("ein Mann",)
    write_file(tmp_path, other_de="der Mann\n")
    set_for = data.model_copy(update={"validation_target": f"{tmp_path}/other.de"})
    assert load_splits(set_for, "source_target").samples["validation"][0].gold == ("der Mann",)


def test_unequal_files_are_refused_with_both_counts(tmp_path):
    write_file(tmp_path, a_en="1\n2\n3\n", a_de="1\n2\n3\n4\n5\n")
    with pytest.raises(
        MeristemError, match=r"a\.en has 3 lines and .*a\.de has 5: .*a\.de:4 is the first line without a partner"
    ):
        load_splits(DataSettings(train=f"{tmp_path}/a.en", target=f"{tmp_path}/a.de"), "source_target")


def test_an_empty_line_on_one_side_is_dropped_and_reported(tmp_path):
    write_file(tmp_path, a_en="one\n\nthree\nfour\n", a_de="eins\nzwei\n \nvier\n")
    splits = load_splits(DataSettings(train=f"{tmp_path}/a.en", target=f"{tmp_path}/a.de", held_out=0), "source_target")
    assert [sample.inputs["source"] for sample in splits.samples["train"]] == ["one", "four"]
    assert splits.notices == [
        f"dropped from train, empty source: 1 ({tmp_path}/a.en:2)",
        f"dropped from train, empty target: 1 ({tmp_path}/a.en:3)",
    ]


def test_a_missing_target_is_reported(tmp_path):
    write_file(tmp_path, a_en="one\n")
    with pytest.raises(MeristemError, match=r"data\.target: no such file"):
        load_splits(DataSettings(train=f"{tmp_path}/a.en", target=f"{tmp_path}/a.de"), "source_target")
    with pytest.raises(MeristemError, match=r"a\.en: no columns in this file; use data\.target=FILE"):
        load_splits(DataSettings(train=f"{tmp_path}/a.en"), "source_target")


def test_each_of_several_sources_has_its_own_target(tmp_path):
    write_file(tmp_path, a_en="one\n", a_de="eins\n", b_en="two\nthree\n", b_de="zwei\ndrei\n")
    source_files = (f"{tmp_path}/a.en", f"{tmp_path}/b.en")
    data = DataSettings(train=source_files, target=f"{tmp_path}/a.de", held_out=0)
    samples = load_splits(data, "source_target").samples["train"]
    assert [sample.gold for sample in samples] == [("eins",), ("zwei",), ("drei",)]


def test_sources_alone_are_enough_to_predict(tmp_path):
    write_file(tmp_path, a_en="one\ntwo\n")
    samples = load_samples(
        f"{tmp_path}/a.en", DataSettings(target="elsewhere/train.de"), "source_target", require_gold=False
    )
    assert [(sample.inputs["source"], sample.gold) for sample in samples] == [("one", None), ("two", None)]
