"""Reader for JSON lines."""

import json

import pytest

from meristem.config.errors import MeristemError
from meristem.data.formats import lines


def test_objects_strings_and_everything_broken(tmp_path, read_corpus):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"\n".join(
            [
                json.dumps({"id": 1, "text": "first 诗"}).encode(),
                b"",
                b'{"text": "unclosed',
                b'"a bare string"',
                b"[1, 2]",
                b'{"other": "x"}',
                b'{"text": null}',
                b'{"text": ""}',
                b"17",
                b"[" * 100_000,
                b'{"text": "half \\ud800 pair and \\u0000 nul"}',
                b'{"text": "last"}',
            ]
        )
    )
    documents, account = read_corpus(path)
    assert [d.text for d in documents] == ["first 诗", "a bare string", "half  pair and  nul", "last"]
    assert [d.location for d in documents] == [f"{path}:{line}" for line in (1, 4, 11, 12)]
    assert account.dropped == {"broken JSON": 2, "no text in the column": 4, "empty": 1}
    assert f"{path}:3: broken JSON" in account.warnings


def test_the_column_is_found_or_asked_for(tmp_path, read_corpus):
    path = tmp_path / "a.jsonl"
    path.write_text('{"title": "T", "review": "R"}\n{"title": "U"}\n')
    with pytest.raises(MeristemError, match=r"a\.jsonl:1: which column holds the text\? Columns: title, review"):
        read_corpus(path)
    documents, account = read_corpus(path, text="review")
    assert [d.text for d in documents] == ["R"]
    assert account.dropped == {"no text in the column": 1}


def test_a_long_text_becomes_several_documents_and_a_longer_line_a_drop(tmp_path, read_corpus, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in ("word " * 500_000, "x" * 4_000_000, "end")))
    monkeypatch.setattr(lines, "MAX_LINE_CHARS", 3_000_000)
    documents, account = read_corpus(path, deduplicate=False)
    assert [len(d.text) for d in documents] == [999_999, 999_999, 499_999, 3]
    assert account.dropped == {"line too long": 1}
    assert account.warnings == [f"{path}:2: line too long"]
