"""Reader for Hugging Face datasets."""

import json

import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.paired_text import split_pair
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings


@pytest.fixture
def local(tmp_path, monkeypatch):
    """A data set that `datasets` finds by name beside the working folder, as it would on the hub."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for split, texts in {"train": ["one", "two", "three"], "test": ["four"]}.items():
        path = tmp_path / "owner/name" / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"n": 1, "text": text}) + "\n" for text in texts))
    monkeypatch.chdir(tmp_path)


def test_rows_of_a_split(local, read_corpus):
    documents, account = read_corpus("hub:owner/name")
    assert [(d.text, d.location) for d in documents] == [
        ("one", "hub:owner/name#1"),
        ("two", "hub:owner/name#2"),
        ("three", "hub:owner/name#3"),
    ]
    assert account.sources == {"hub:owner/name": 3}
    assert [d.text for d in read_corpus("hub:owner/name?split=test")[0]] == ["four"]


def test_wrong_split_and_column_are_told(local, read_corpus):
    with pytest.raises(MeristemError, match=r"hub:owner/name: cannot be read: .*split 'dev'"):
        read_corpus("hub:owner/name?split=dev")
    with pytest.raises(MeristemError, match="no column 'txt', did you mean text"):
        read_corpus("hub:owner/name", text="txt")


def test_a_target_is_a_column(local, read_corpus, tmp_path):
    path = tmp_path / "owner/pairs" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"en": f"one {n}", "de": f"eins {n}"}) + "\n" for n in range(3)))
    corpus_reader = CorpusReader(CorpusSettings(source="hub:owner/pairs", text="en", target="de", validation=0, test=0))
    assert [split_pair(document.text)[:2] for document in corpus_reader] == [
        (f"one {n}", f"eins {n}") for n in range(3)
    ]
    with pytest.raises(MeristemError, match=r"hub:owner/pairs: corpus.image is a column of a jsonl"):
        read_corpus("hub:owner/pairs", image="de")
