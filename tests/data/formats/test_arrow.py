"""Arrow files and folders of save_to_disk, as corpora and as labelled data; damaged files."""

from __future__ import annotations

import random
from pathlib import Path

import datasets
import pyarrow
import pytest

from meristem.config.errors import MeristemError
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings

TEXTS = [f"The gardener number {number} planted trees in the garden." for number in range(300)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    rows = {"text": TEXTS, "label": [number % 2 for number in range(len(TEXTS))]}
    train = datasets.Dataset.from_dict(rows, features=features)
    splits = datasets.DatasetDict({"train": train, "test": train.select(range(10))})
    splits.save_to_disk(tmp_path / "saved", num_shards={"train": 2, "test": 1})
    (tmp_path / "saved" / "train" / "cache-1234.arrow").write_bytes(b"left by map")
    return tmp_path / "saved"


def test_a_saved_dataset_is_a_corpus_of_its_train_split(saved: Path, read_corpus) -> None:
    documents, account = read_corpus(saved, text="text", deduplicate=False)
    assert sorted(document.text for document in documents) == sorted(TEXTS)
    assert documents[0].location.endswith("data-00000-of-00002.arrow#1")
    assert not account.rejected
    documents, _ = read_corpus(saved / "test", text="text", deduplicate=False)
    assert len(documents) == 10


def test_its_splits_are_labelled_data_with_class_names(saved: Path) -> None:
    for source, count in ((saved, 10), (saved / "train", 300)):
        samples = load_samples(str(source), DataSettings(), "text")
        assert len(samples) == count
        assert [sample.gold for sample in samples[:3]] == ["bad", "good", "bad"]


def test_arrow_files_of_both_kinds(tmp_path: Path, read_corpus) -> None:
    table = pyarrow.table({"text": ["one row", "another row"], "n": [1, 2]})
    for name, create in (("file", pyarrow.ipc.new_file), ("stream", pyarrow.ipc.new_stream)):
        with pyarrow.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as sink, create(sink, table.schema) as writer:
            writer.write_table(table)
        documents, _ = read_corpus(tmp_path / f"{name}.arrow", deduplicate=False)
        assert [document.text for document in documents] == ["one row", "another row"]


def test_damaged_files_are_counted_and_never_crash(saved: Path, tmp_path: Path, read_corpus) -> None:
    content = (saved / "test" / "data-00000-of-00001.arrow").read_bytes()
    (tmp_path / "good.txt").write_text("good")
    rng = random.Random(0)
    for _ in range(30):
        broken = bytearray(content)
        for _ in range(3):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        (tmp_path / "a.arrow").write_bytes(bytes(broken))
        documents, _ = read_corpus((str(tmp_path / "a.arrow"), str(tmp_path / "good.txt")), deduplicate=False)
        assert documents[-1].text == "good"
    for data, reason in ((b"just text", "is not an Arrow file"), (content[:20], "damaged Arrow file")):
        (tmp_path / "a.arrow").write_bytes(data)
        with pytest.raises(MeristemError, match=reason):
            load_samples(str(tmp_path / "a.arrow"), DataSettings(), "text")


def test_a_broken_folder_is_named(saved: Path) -> None:
    (saved / "test" / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(MeristemError, match=r"data-00000-of-00001.arrow: no such file, although state.json names it"):
        load_samples(str(saved), DataSettings(), "text")
    (saved / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(MeristemError, match=r"has no split 'test'"):
        load_samples(str(saved), DataSettings(), "text")
