"""Sources and formats: one registry for the corpus and for labelled data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.config.registry import module_names
from meristem.corpus.settings import CorpusSettings
from meristem.data import formats, sources
from meristem.data.records import FILE_FORMATS, FileFormat
from meristem.data.sources import FileSource, HubSource, formats_by_suffix, resolve_source
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings

NEW_FORMAT = '''"""Cards: a question and an answer on two lines, a blank line between cards."""
from meristem.data.byte_stream import ByteStream
from meristem.data.encoding import decode_stream
from meristem.data.records import FileFormat, Record

class CardsFormat(FileFormat):
    suffixes = (".cards",)

    def records(self, columns=None):
        text = "".join(decode_stream(ByteStream(self.file, self.counts), self.counts))
        for number, card in enumerate(text.split("\\n\\n")):
            question, answer = card.strip().split("\\n")
            yield Record({"text": question, "label": answer}, f"{self.name}:{3 * number + 1}")
'''


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of a format that is one new module beside the others."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "cards.py").write_text(NEW_FORMAT)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path / "modules")])
    for cached in (module_names, formats_by_suffix):
        cached.cache_clear()
    path = tmp_path / "a.cards"
    path.write_text("Is it open?\nyes\n\nIs it late?\nno\n")
    yield path
    for cached in (module_names, formats_by_suffix):
        cached.cache_clear()


def test_one_new_module_is_read_as_corpus_and_as_labelled_data(cards: Path, read_corpus: Any) -> None:
    documents, account = read_corpus(cards, validation=0, test=0)
    assert [(d.text, d.location) for d in documents] == [("Is it open?", f"{cards}:1"), ("Is it late?", f"{cards}:4")]
    assert account.bytes == cards.stat().st_size
    samples = load_samples(str(cards), DataSettings(), "text")
    assert [(s.inputs["text"], s.gold, s.location) for s in samples] == [
        ("Is it open?", "yes", f"{cards}:1"),
        ("Is it late?", "no", f"{cards}:4"),
    ]


@pytest.mark.parametrize("name", FILE_FORMATS)
def test_every_format_declares_what_it_reads(name: str) -> None:
    format_class = FILE_FORMATS[name]
    assert issubclass(format_class, FileFormat) and format_class.__doc__
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in format_class.suffixes)
    assert [formats_by_suffix()[suffix] for suffix in format_class.suffixes] == [name] * len(format_class.suffixes)


def test_labels_of_a_file_named_as_corpus_and_the_reverse(tmp_path: Path, read_corpus: Any) -> None:
    rows = [{"text": f"row {number}", "label": "ab"[number % 2]} for number in range(4)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert [d.text for d in read_corpus(tmp_path / "a.json", validation=0, test=0)[0]] == [row["text"] for row in rows]
    (tmp_path / "a.conll").write_text("# text = EU rejects it.\nEU B-ORG\nrejects O\nit O\n. O\n\n我 O\n们 O\n")
    words = read_corpus(tmp_path / "a.conll", validation=0, test=0, text="words")[0]
    assert [d.text for d in words] == ["EU rejects it .", "我们"]
    assert read_corpus(tmp_path / "a.conll", validation=0, test=0)[1].dropped == {"no text in the column": 1}
    (tmp_path / "b.txt").write_text("only text")
    documents, account = read_corpus(tmp_path)  # what else lies in a folder of documents is not one of them
    assert [d.text for d in documents] == ["only text"] and account.skipped == {".json": 1, ".conll": 1}


def test_a_broken_json_file_is_rejected_with_the_rest_kept(tmp_path: Path, read_corpus: Any) -> None:
    (tmp_path / "a.json").write_text('[{"text": "x"},\n {"text"')
    (tmp_path / "b.json").write_text('["one", "two"]')
    documents, account = read_corpus(f"{tmp_path}/*.json", validation=0, test=0)
    assert [d.text for d in documents] == ["one", "two"] and account.rejected.total() == 1
    with pytest.raises(MeristemError, match=r"a\.json:2: broken JSON"):
        load_samples(str(tmp_path / "a.json"), DataSettings(), "text")


def test_a_dataset_name_may_have_a_dot_and_a_file_name_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for setting in ("corpus.source", "data.train"):
        assert resolve_source("owner/name-1.5", setting, Counter()) == HubSource("owner/name-1.5")
        for missing in ("folder/file.tsv", "folder/file.conllu", "folder/file.en.gz"):
            with pytest.raises(MeristemError, match=f"{setting}: no such file or folder"):
                resolve_source(missing, setting, Counter())


def test_extensions(tmp_path: Path) -> None:
    for name, expected in {
        "a.b.TXT": (".txt", "", "text"),
        "a.csv.gz": (".csv", ".gz", "table"),
        "a.en.zst": (".en", ".zst", ""),
        "noending": ("", "", ""),
    }.items():
        (tmp_path / name).write_text("x")
        file = FileSource.from_path(tmp_path / name)
        assert (file.extension, file.compression, file.format) == expected
    assert FileSource.from_path(tmp_path / "noending", "tsv").format == "table"


def test_unknown_formats_are_answered_with_the_known_ones() -> None:
    for settings in (CorpusSettings, DataSettings):
        with pytest.raises(ValueError, match="no format 'jsonll', did you mean jsonl"):
            settings(format="jsonll")
    assert DataSettings(format="csv").format == "csv" and "html" in sources.format_names()
