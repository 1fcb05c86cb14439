"""Separate validation and test data, corpus.format and corpus.encoding, and shares of a corpus."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.validation import build_settings
from meristem.corpus.corpus_sources import resolve_sources
from meristem.corpus.document import Document
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import corpus_digest, source_key

LINES = [f"Sentence number {number} of the book, said the {number % 7}th cat." for number in range(40)]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def by_split(documents, split):
    return [document.text for document in documents if document.split == split]


@pytest.fixture
def split_folder(tmp_path):
    write_lines(tmp_path / "train.txt", LINES[:30])
    write_lines(tmp_path / "valid.txt", LINES[28:35])
    write_lines(tmp_path / "more" / "test.txt", LINES[34:])
    return tmp_path


@pytest.mark.parametrize(
    "test_settings", [{}, {"near_dedup": {"jaccard": 0.99, "drop": False}}, {"deduplicate": False}]
)
def test_files_of_their_own_are_the_splits_and_leave_the_training_text(split_folder, read_corpus, test_settings):
    documents, account = read_corpus(
        split_folder / "train.txt",
        document="line",
        validation=str(split_folder / "valid.txt"),
        test=str(split_folder / "more"),
        **test_settings,
    )
    assert by_split(documents, "test") == LINES[34:]
    assert by_split(documents, "validation") == LINES[28:34]
    assert by_split(documents, "train") == LINES[:28]
    assert account.dropped == {"also in the validation data": 2, "also in the test data": 1}
    assert account.read == 30 + 7 + 6


def test_a_file_for_one_split_and_a_share_for_the_other(split_folder, read_corpus):
    documents, _ = read_corpus(
        split_folder / "train.txt", document="line", validation=str(split_folder / "valid.txt"), test="10%"
    )
    assert len(by_split(documents, "validation")) == 7
    assert len(by_split(documents, "test")) == 3
    assert len(by_split(documents, "train")) == 25


def test_a_held_out_file_inside_the_source_is_read_once(split_folder, read_corpus):
    _, account = read_corpus(split_folder, document="line", validation=str(split_folder / "valid.txt"), test=0)
    assert account.skipped == {"(read as validation data)": 1}
    assert account.read == 30 + 7 + 6
    with pytest.raises(MeristemError, match="also held-out data"):
        read_corpus(split_folder / "valid.txt", validation=str(split_folder / "valid.txt"))


def test_samples_and_pairs_have_splits_of_their_own_too(tmp_path, read_corpus):
    documents, account = read_corpus("builtin:microworld?size=30", validation="builtin:microworld?size=5", test=0)
    assert account.splits == {"validation": 5, "train": 25}
    for name, lines in {"train": range(9), "valid": range(7, 12)}.items():
        write_lines(tmp_path / f"{name}.en", [f"one {n}" for n in lines])
        write_lines(tmp_path / f"{name}.de", [f"eins {n}" for n in lines])
    pairs = CorpusSettings(
        source=str(tmp_path / "train.en"),
        target=str(tmp_path / "train.de"),
        test=0,
        validation=str(tmp_path / "valid.en"),
    )
    assert corpus_digest(pairs) != corpus_digest(pairs.model_copy(update={"validation": 0.0}))
    documents = list(CorpusReader(pairs))
    assert len(by_split(documents, "validation")) == 5
    assert len(by_split(documents, "train")) == 7


def test_processed_corpora_keep_their_splits_and_grow(split_folder, tmp_path):
    settings = CorpusSettings(
        source=str(split_folder / "train*.txt"),
        document="line",
        near_dedup=True,
        validation=str(split_folder / "valid.txt"),
        test=0,
    )
    folder = tmp_path / "processed"
    first = list(CorpusReader(settings, folder=folder))
    assert by_split(first, "validation") == LINES[28:35]
    assert list(CorpusReader(settings, folder=folder)) == first  # from its parts
    write_lines(
        split_folder / "train2.txt",
        [*LINES[30:32], "Another sentence that nobody has read before, about nothing at all."],
    )
    corpus_reader = CorpusReader(settings, folder=folder)
    assert [document for document in corpus_reader if document not in first] == [grown_document(split_folder)]
    assert corpus_reader.account.dropped == {"also in the validation data": 4}


def grown_document(folder):
    text = "Another sentence that nobody has read before, about nothing at all."
    return Document(text, f"{folder / 'train2.txt'}:3")


def test_keys_of_corpora_without_new_settings_stay_and_others_differ(split_folder):
    plain = CorpusSettings().cache_key_fields()
    assert json.dumps(plain, sort_keys=True) == (
        '{"deduplicate": true, "document": "auto", "limit": null, "shortest": 1, "test": 0.02, "text": null, '
        '"validation": 0.02}'
    )
    source = {"source": str(split_folder / "train.txt")}
    changes = [
        {},
        {"format": "wikitext"},
        {"encoding": "cp1250"},
        {"limit": "10%"},
        {"limit": 10},
        {"validation": str(split_folder / "valid.txt")},
        {"test": str(split_folder / "valid.txt")},
        {"validation": 0},
    ]
    keys = [corpus_digest(CorpusSettings(**source, **change)) for change in changes]
    assert len(set(keys)) == len(keys)
    write_lines(split_folder / "valid.txt", LINES[:3])
    assert corpus_digest(CorpusSettings(**source, validation=str(split_folder / "valid.txt"))) != keys[5]


def test_a_table_that_was_read_wrongly_has_another_key(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,one\n")
    assert len(source_key(resolve_sources(CorpusSettings(source=str(path)))[0])) == 4
    path.write_text("id;text\n1;one\n")
    assert source_key(resolve_sources(CorpusSettings(source=str(path)))[0])[4:] == ["delimiter ;"]


def test_missing_and_empty_held_out_data_are_named(split_folder, read_corpus):
    with pytest.raises(MeristemError, match=r"corpus\.validation: no such file or folder: .*valid\.tx .*valid\.txt"):
        read_corpus(split_folder / "train.txt", validation=str(split_folder / "valid.tx"))
    (split_folder / "empty.txt").write_text("")
    with pytest.raises(MeristemError, match=r"corpus\.test: no usable documents in .*empty\.txt"):
        read_corpus(split_folder / "train.txt", test=str(split_folder / "empty.txt"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation": 0.7}, "not a share between 0 and 0.5"),
        ({"test": "80%"}, "not a share between 0 and 0.5"),
        ({"limit": 0}, "at least 1"),
        ({"limit": "ten"}, "such as 10%"),
        ({"limit": "120%"}, "such as 10%"),
        ({"limit": -3}, "at least 1"),
        ({"validation": ()}, "give a share"),
        ({"encoding": "latin-42"}, "unknown encoding"),
        ({"encoding": "zip"}, "unknown encoding"),
    ],
)
def test_what_cannot_be_is_refused_in_words(settings, message):
    with pytest.raises(RecipeError, match=message):
        build_settings(CorpusSettings, settings, "corpus")


# ------------------------------------------------------------ limit


def test_a_share_is_chosen_by_the_texts_and_nested(tmp_path, read_corpus):
    lines = [f"line {number} has words of its own, {number * 7919}" for number in range(2000)]
    write_lines(tmp_path / "a.txt", lines)
    write_lines(tmp_path / "b.txt", lines[::-1])
    read_results = {
        (name, share): read_corpus(tmp_path / name, document="line", limit=share)
        for name in ("a.txt", "b.txt")
        for share in ("5%", "10%")
    }
    texts_by_share = {
        name_and_share: {document.text for document in documents}
        for name_and_share, (documents, _) in read_results.items()
    }
    assert texts_by_share["a.txt", "10%"] == texts_by_share["b.txt", "10%"]
    assert texts_by_share["a.txt", "5%"] < texts_by_share["a.txt", "10%"]
    assert 150 < len(texts_by_share["a.txt", "10%"]) < 250  # sd 13
    documents, account = read_results["a.txt", "10%"]
    assert account.dropped == {"outside of 10% of the documents": 2000 - len(documents)}
    splits_by_text = {document.text: document.split for document in read_corpus(tmp_path / "a.txt", document="line")[0]}
    assert {"train", "validation", "test"} == set(splits_by_text.values())
    shared_documents = read_corpus(tmp_path / "a.txt", document="line", limit="70%")[0]
    assert len(shared_documents) > 1000  # so that splits are drawn by hash here too, and no document changes sides
    assert all(splits_by_text[document.text] == document.split for document in shared_documents)


def test_a_limit_counts_the_source_alone(split_folder, read_corpus):
    _, account = read_corpus(
        split_folder / "train.txt", document="line", limit=5, validation=str(split_folder / "valid.txt"), test=0
    )
    assert account.splits == {"validation": 7, "train": 5}


# ------------------------------------------------------------ formats

WIKITEXT = (
    " \n = Homarus gammarus = \n \n A lobster of the <unk> ocean . \n = 3 @.@ 5 = \n It is blue . \n"
    " \n = = Description = = \n \n It has claws . \n \n = = = Claws = = = \n \n One is larger . \n"
    ' \n = E = mc2 = \n \n A formula , " = x = y = " in words . \n'
)


@pytest.mark.parametrize("name", ["wiki.valid.tokens", "wiki.valid.tokens.gz", "valid.txt", "crlf.tokens"])
def test_wikitext_articles_are_documents(tmp_path, read_corpus, name, monkeypatch):
    data = WIKITEXT.replace("\n", "\r\n" if name.startswith("crlf") else "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    settings = {"format": "wikitext"} if name.endswith(".txt") else {}
    documents, _ = read_corpus(tmp_path / name, **settings)
    assert [document.text.split("\n")[0] for document in documents] == ["= Homarus gammarus =", "= E = mc2 ="]
    assert [document.location for document in documents] == [f"{tmp_path / name}:{line}" for line in (2, 16)]
    assert "<unk>" in documents[0].text and "= = = Claws = = =" in documents[0].text
    if name.endswith(".gz"):
        return
    monkeypatch.setattr("meristem.corpus.read_ranges.RANGE_BYTES", 40)  # the same in ranges
    assert [document.text for document in read_corpus(tmp_path / name, **settings)[0]] == [
        document.text for document in documents
    ]


def test_a_file_of_tokens_without_articles_is_plain_text(tmp_path, read_corpus):
    write_lines(tmp_path / "a.tokens", ["just a line", "", "and another"])
    assert [document.text for document in read_corpus(tmp_path / "a.tokens", document="block")[0]] == [
        "just a line",
        "and another",
    ]
    assert len(read_corpus(tmp_path / "a.tokens")[0]) == 1


def test_any_file_is_read_as_the_setting_says(tmp_path, read_corpus):
    write_lines(tmp_path / "ptb" / "ptb.train", LINES[:5])
    write_lines(tmp_path / "ptb" / "noending", LINES[5:6])
    assert len(read_corpus(tmp_path / "ptb" / "ptb.train", format="text", document="line")[0]) == 5
    assert len(read_corpus(tmp_path / "ptb", format="text", document="line")[0]) == 6
    write_lines(tmp_path / "a.dump", ['{"text": "one"}', '{"text": "two"}'])
    assert len(read_corpus(tmp_path / "a.dump", format="jsonl")[0]) == 2
    write_lines(tmp_path / "b.dump", ["id;text", "1;one, two"])
    assert [document.text for document in read_corpus(tmp_path / "b.dump", format="csv")[0]] == ["one, two"]
    (tmp_path / "c.dump").write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(MeristemError, match=r"ends in \.dump, but holds a program data"):
        read_corpus(tmp_path / "c.dump", format="text")
    with pytest.raises(MeristemError, match=r"corpus\.format=text"):
        read_corpus(tmp_path / "a.dump")


def test_an_encoding_can_be_named(tmp_path, read_corpus):
    text = "Zażółć gęślą jaźń, pchnąć w tę łódź jeża."
    (tmp_path / "a.txt").write_bytes(text.encode("cp1250"))
    documents, account = read_corpus(tmp_path / "a.txt", encoding="cp1250")
    assert [document.text for document in documents] == [text]
    assert not account.damaged
