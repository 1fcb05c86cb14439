"""Image folders with a caption file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from meristem.config.errors import MeristemError
from meristem.data.images import load_image, load_image_file
from meristem.labelled.load import load_samples, load_splits
from meristem.labelled.settings import DataSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate("abc"):
        Image.fromarray(np.full((8, 8, 3), 40 * number, np.uint8)).save(tmp_path / f"{name}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("captions.tsv", "a.png\tred\nb.png\tgreen\n"),
        ("captions.txt", "a.png#0\tred\nb.png#0\tgreen\n"),
        ("captions.csv", "image,caption\na.png,red\nb.png,green\n"),
        ("captions.jsonl", '{"file": "a.png", "caption": "red"}\n{"file": "b.png", "caption": "green"}\n'),
        ("metadata.jsonl", '{"file_name": "a.png", "text": "red"}\n{"file_name": "b.png", "text": "green"}\n'),
    ],
)
def test_caption_files(folder, name, text):
    (folder / name).write_text(text)
    samples = load_samples(str(folder), DataSettings(), "image")
    assert [(Path(sample.inputs["picture"]).name, sample.gold) for sample in samples] == [
        ("a.png", ("red",)),
        ("b.png", ("green",)),
    ]
    assert samples[0].location.startswith(f"{folder / name}:")
    assert load_image_file(Path(samples[1].inputs["picture"]), 4)[0, 0, 0] == 40


def test_several_captions_are_one_sample_to_evaluate_and_several_to_train_on(folder):
    (folder / "captions.tsv").write_text("a.png\tred\na.png\tdark red\nb.png\tgreen\nc.png\tblue\n")
    samples = load_samples(str(folder), DataSettings(), "image")
    assert [sample.gold for sample in samples] == [("red", "dark red"), ("green",), ("blue",)]
    train_samples = load_splits(DataSettings(train=str(folder), held_out=0), "image").samples["train"]
    assert [sample.gold[0] for sample in train_samples] == ["red", "dark red", "green", "blue"]


def test_broken_and_missing_images_are_reported(folder):
    (folder / "bad.png").write_bytes(b"\x89PNG no picture")
    (folder / "captions.tsv").write_text("a.png\tred\nbad.png\tbad\nnone.png\tnone\n")
    splits = load_splits(DataSettings(train=str(folder), held_out=0), "image")
    assert len(splits.samples["train"]) == 1
    captions_file = folder / "captions.tsv"
    assert splits.notices == [
        f"dropped from train, not an image, or a damaged one: 1 ({captions_file}:2 {folder}/bad.png)",
        f"dropped from train, image missing: 1 ({captions_file}:3 {folder}/none.png)",
    ]
    captions_file.write_text("none.png\tnone\n")
    with pytest.raises(MeristemError, match=r"no samples in .*image missing: 1 \(.*captions\.tsv:1"):
        load_splits(DataSettings(train=str(folder)), "image")


def test_a_folder_without_captions(folder):
    with pytest.raises(MeristemError, match=r"no caption file.*captions\.tsv.*it holds a\.png"):
        load_samples(str(folder), DataSettings(), "image")


def test_the_same_image_under_another_name_is_a_leak(folder):
    (folder / "copy.png").write_bytes((folder / "a.png").read_bytes())
    (folder / "train.tsv").write_text("file\tcaption\na.png\tred\nb.png\tgreen\n")
    (folder / "test.tsv").write_text("file\tcaption\ncopy.png\tred\nc.png\tblue\n")
    data = DataSettings(train=f"{folder}/train.tsv", test=f"{folder}/test.tsv", held_out=0)
    assert load_splits(data, "image").notices == [
        f"leak: 1 of 2 test samples are also in training: {folder}/test.tsv:2 is {folder}/train.tsv:2"
    ]


def test_built_in_images():
    samples = load_samples("builtin:microworld-pictures?size=3", DataSettings(), "image")
    assert len(samples) == 3 and load_image(samples[0].inputs["picture"], 16).shape == (16, 16, 3)
