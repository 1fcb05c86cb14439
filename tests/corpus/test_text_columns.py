"""Column detection for text, target and image."""

import json

import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.paired_text import split_pair
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.text_columns import find_columns, find_text_column


@pytest.mark.parametrize(
    ("columns", "strings", "requested", "column"),
    [
        (["id", "text", "title"], ["text", "title"], None, "text"),
        (["content", "body"], ["content", "body"], None, "content"),
        (["id", "review"], ["review"], None, "review"),
        (["text", "title"], ["text", "title"], "title", "title"),
    ],
)
def test_found(columns, strings, requested, column):
    assert find_text_column("f:1", columns, strings, requested) == column


@pytest.mark.parametrize(
    ("columns", "requested", "message"),
    [
        (["title", "review"], None, "Columns: title, review. Set corpus.text=COLUMN"),
        (["title", "review"], "reveiw", "no column 'reveiw', did you mean review"),
        ([], None, "Columns: none"),
    ],
)
def test_not_found_names_the_columns(columns, requested, message):
    with pytest.raises(MeristemError, match=message) as error:
        find_text_column("f:1", columns, columns, requested)
    assert str(error.value).startswith("f:1: ")


def corpus_of(path, **options):
    return CorpusSettings(source=str(path), **{"validation": 0, "test": 0, "processes": 1, **options})


def write_rows(path, rows):
    names = list(rows[0])
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), path)
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [names, *([row[name] or "" for name in names] for row in rows)]
        path.write_text("".join(mark.join(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_a_target_is_a_column(tmp_path, ending):
    rows = [{"id": "1", "source": "one", "german": "eins"}, {"id": "2", "source": "two", "german": None}]
    corpus_reader = CorpusReader(corpus_of(write_rows(tmp_path / f"a{ending}", rows), target="german"))
    assert [split_pair(document.text)[:2] for document in corpus_reader] == [("one", "eins")]
    missing = "empty" if ending in {".csv", ".tsv"} else "no target in the column"
    assert corpus_reader.account.dropped == {missing: 1}


@pytest.mark.parametrize(
    ("columns", "options", "expected_columns"),
    [
        (["target", "text"], {"target": "target"}, ["text", "target"]),
        (["text", "source", "target"], {"target": "target"}, ["source", "target"]),
        (["title", "target"], {"target": "target"}, ["title", "target"]),
        (["a", "b", "c"], {"target": "c", "text": "b"}, ["b", "c"]),
        (["file", "text", "caption"], {"image": "file"}, ["caption", "file"]),
    ],
)
def test_the_text_beside_a_target(columns, options, expected_columns):
    assert find_columns("f:1", columns, columns, CorpusSettings(**options)).names == expected_columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "germna"}, "f:1: corpus.target: no column 'germna', did you mean german"),
        ({"image": "image"}, "f:1: corpus.image: no column 'image'"),
        ({"target": "german"}, "which column holds the text. Columns: english, french"),
    ],
)
def test_a_missing_column_is_named(options, message):
    columns = ["english", "german", "french"]
    with pytest.raises(MeristemError, match=message):
        find_columns("f:1", columns, columns, CorpusSettings(**options))
