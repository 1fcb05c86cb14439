"""Hub data sets by name, replaced by local folders in the working directory."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from meristem.config.errors import MeristemError
from meristem.labelled.load import load_samples, load_splits
from meristem.labelled.settings import DataSettings


@pytest.fixture(autouse=True)
def _local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)


def store(name: str, split: str, rows: dict[str, list[object]], **features: object) -> None:
    path = Path(name, f"{split}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(rows, features=datasets.Features(features)).to_parquet(str(path))


def test_label_numbers_become_names_and_splits_follow_their_use():
    kinds = {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    store("owner/films", "train", {"sentence": ["a", "b", "c"], "label": [0, 1, 1]}, **kinds)
    store("owner/films", "validation", {"sentence": ["d"], "label": [1]}, **kinds)
    store("owner/films", "test", {"sentence": ["e"], "label": [-1]}, **kinds)
    samples_by_split = load_splits(DataSettings(train="hub:owner/films", validation="hub:owner/films"), "text").samples
    assert [(sample.inputs["text"], sample.gold, sample.location) for sample in samples_by_split["train"]][:2] == [
        ("a", "neg", "hub:owner/films#1"),
        ("b", "pos", "hub:owner/films#2"),
    ]
    assert [sample.gold for sample in samples_by_split["validation"]] == ["pos"]
    with pytest.raises(MeristemError, match="hub:owner/films#1: no label"):
        load_samples("hub:owner/films?split=test", DataSettings(), "text")
    assert load_samples("hub:owner/films?split=test", DataSettings(), "text", require_gold=False)[0].gold is None


def test_tags_and_translations():
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-X", "I-X"]))
    words = datasets.Sequence(datasets.Value("string"))
    store("owner/tags", "train", {"tokens": [["a", "b"]], "ner_tags": [[1, 2]]}, tokens=words, ner_tags=tags)
    assert load_samples("hub:owner/tags?split=train", DataSettings(), "words")[0].gold == ("B-X", "I-X")
    translations = {"translation": [{"en": "a dog", "de": "ein Hund"}]}
    store("owner/pairs", "train", translations, translation=datasets.Translation(["en", "de"]))
    (sample,) = load_samples("hub:owner/pairs?split=train", DataSettings(text="en", target="de"), "source_target")
    assert (sample.inputs["source"], sample.gold) == ("a dog", ("ein Hund",))


def test_a_missing_data_set_is_reported():
    with pytest.raises(MeristemError, match="hub:owner/none: cannot be read"):
        load_samples("hub:owner/none", DataSettings(), "text")
