"""Folders of any depth and files with any name are read, or skipped with a note; they never stop a pass."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.corpus.corpus_command import run_corpus_command
from meristem.corpus.report.corpus_report import report_to_json
from meristem.data.file_search import TOO_LONG, UNREADABLE_FOLDER, glob_files, walk_files
from meristem.evaluation.minimal_pairs import read_pairs
from meristem.labelled.row_streams import SourceSpec, iter_row_streams
from meristem.labelled.rows import ReadNotes
from meristem.labelled.settings import DataSettings
from tests.corpus.conftest import Read

LEVELS = 1100  # more than Python's recursion limit of 1,000
PAIR = '{"text": "x", "sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps."}\n'


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Nested folders with files at the bottom, and below these a file whose path no system call takes."""
    folder, before = tmp_path / "deep", Path.cwd()
    folder.mkdir()
    names = ["d"] * LEVELS + ["n" * 250] * 8
    try:
        os.chdir(folder)
        for level, name in enumerate(names):
            if level == LEVELS:
                Path("bottom.txt").write_text("Text at the bottom.")
                Path("pairs.jsonl").write_text(PAIR)
            Path(name).mkdir()
            os.chdir(name)
        Path("unreachable.txt").write_text("Nobody reads this.")
        os.chdir(before)
        yield folder
    finally:  # shutil.rmtree, with which pytest would clean up, recurses too
        os.chdir(before)
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_deep_folders_are_read_and_paths_that_are_too_long_are_skipped(
    deep: Path, read_corpus: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, account = read_corpus(deep)
    assert {document.text for document in documents} == {"Text at the bottom.", "x"}
    assert account.skipped == {TOO_LONG: 1}
    monkeypatch.chdir(deep)
    documents, account = read_corpus("d/**/b*.txt")
    assert [document.text for document in documents] == ["Text at the bottom."]
    assert account.skipped == {TOO_LONG: 1}
    read_notes = ReadNotes()
    source_spec = SourceSpec("d/**/*.jsonl", DataSettings(train="unused"), "text")
    assert [len(list(stream.rows)) for stream in iter_row_streams(source_spec, read_notes)] == [1]
    assert read_notes.sentences() == [f"d/**/*.jsonl: 1 skipped {TOO_LONG}"]
    with pytest.raises(MeristemError, match="1 files or folders have a path too long"):
        read_pairs(deep)


def test_the_search_is_that_of_the_standard_library(tmp_path: Path) -> None:
    for name in ("a.txt", "b/c.txt", "b/.d/e.txt", "b/f/g.txt", "[x]/h.txt", ".i/j.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "circle").symlink_to("circle")
    skipped: Counter[str] = Counter()
    for pattern in (
        "*",
        "*.txt",
        "**/*.txt",
        "**/**/g*",
        "b/*",
        "*/c.txt",
        "**",
        "b/**/e.txt",
        "[[]x]/*",
        "**/f/*.t?t",
        "link/*.txt",
        "../*/b/c.txt",
        "[!a]*/*.txt",
    ):
        expected = sorted(path for path in tmp_path.glob(pattern) if path.is_file())
        assert glob_files(tmp_path, pattern, skipped) == expected, pattern
    walked = sorted(
        Path(root, name)
        for root, folders, names in os.walk(tmp_path)
        if "/." not in root.removeprefix(str(tmp_path))
        for name in names
    )
    assert walk_files(tmp_path, skipped) == walked
    assert not skipped
    assert glob_files(tmp_path, "circle/*", skipped) == [] and skipped == {UNREADABLE_FOLDER: 1}


def test_names_that_are_not_utf8_are_read_and_shown_with_escapes(tmp_path: Path) -> None:
    crawl = tmp_path / "crawl"
    crawl.mkdir()
    for name, text in {
        "caf\udce9.txt": "A text about coffee.",
        "\udcfcber.jsonl": '{"text": "Good."}\n{broken\n',
        "no.\udce9nding": "x",
        "empty\udce9.txt": "",
    }.items():
        (crawl / name).write_text(text)
    for near_dedup in (False, True, True):  # the third time from the parts of the second
        corpus_report = run_corpus_command(
            str(crawl),
            [f"corpus.near_dedup={str(near_dedup).lower()}"],
            Console(quiet=True),
            out=tmp_path / f"clean{len(list(tmp_path.iterdir()))}",
            page_path=tmp_path / "page.html",
        )
        values = json.loads(report_to_json(corpus_report))
        assert values["sources"] == {f"{crawl}/caf\\xe9.txt": 1, f"{crawl}/\\xfcber.jsonl": 1}
        assert values["skipped"] == {".\\xe9nding": 1}
        assert any("\\xfcber.jsonl:2: broken JSON" in warning for warning in values["warnings"])
        assert "caf\\xe9.txt" in (tmp_path / "page.html").read_text("utf-8")


def test_minimal_pairs_are_named_after_files_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9.jsonl").write_text(PAIR)
    assert [pair.paradigm for pair in read_pairs(tmp_path)] == ["caf\\xe9"]
