"""Resolving corpus sources."""

import os
import time
from pathlib import Path

import pytest

from meristem.config.errors import MeristemError
from meristem.corpus import file_contents
from meristem.corpus.corpus_sources import find_sources, resolve_sources
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import corpus_digest
from meristem.data.sources import BuiltinSource, FileSource, HubSource


def source_names(*sources: object) -> list[str]:
    return [source.name for source in resolve_sources(CorpusSettings(source=tuple(map(str, sources))))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt.gz", "deep/er/c.JSONL", "z.csv.zst", "p.png", "noend", ".hidden.txt", ".git/d.txt"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path / "data"


def test_folder_recursively_sorted_and_counted(folder):
    sources = find_sources(CorpusSettings(source=str(folder)))
    names = [Path(source.name).relative_to(folder).as_posix() for source in sources.sources]
    assert names == ["a.txt.gz", "b.txt", "deep/er/c.JSONL", "z.csv.zst"]
    assert sources.skipped == {".png": 1, "(no ending)": 1, "(hidden)": 1}
    assert [(s.format, s.compression) for s in sources.sources if isinstance(s, FileSource)] == [
        ("text", ".gz"),
        ("text", ""),
        ("jsonl", ""),
        ("table", ".zst"),
    ]


def test_globs_several_sources_and_repeats(folder):
    assert source_names(folder / "**/*.JSONL") == [str(folder / "deep/er/c.JSONL")]
    assert source_names(folder / "b.txt", folder) == [
        str(folder / name) for name in ("b.txt", "a.txt.gz", "deep/er/c.JSONL", "z.csv.zst")
    ]


def test_relative_paths_and_globs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert source_names("b.txt", "*.gz") == ["b.txt", "a.txt.gz"]


def test_names_that_are_no_paths():
    assert resolve_sources(CorpusSettings(source="builtin:microworld?size=3")) == (BuiltinSource("microworld?size=3"),)
    assert resolve_sources(CorpusSettings(source="owner/name")) == (HubSource("owner/name"),)
    assert resolve_sources(CorpusSettings(source="hub:o/n?config=c&split=test")) == (HubSource("o/n", "c", "test"),)


def test_messages_say_what_where_and_what_to_do(folder, monkeypatch):
    (folder / "pictures").mkdir()
    (folder / "pictures/x.png").write_text("x")
    (folder / "nothing").mkdir()
    monkeypatch.chdir(folder)
    for source, message in {
        "b.tx": "did you mean b.txt",
        "deep/err/c.JSONL": "did you mean er",
        "deep/eer": "did you mean er",
        "missing.txt": "'missing.txt' is not in",
        "*.parquet": "matches no file",
        "*.png": "matches only files that cannot be read",
        "pictures": r"contains \.png \(1\); readable are \.txt",
        "nothing": "no files at all",
        "p.png": r"\.png files cannot be read; readable are",
        "noend": "without an extension",
        "builtin:pydoc": "did you mean pydocs",
        "hub:o/n?spilt=test": "did you mean split",
        "hub:": "needs a name",
    }.items():
        with pytest.raises(MeristemError, match=message):
            resolve_sources(CorpusSettings(source=source))


def test_digest_follows_what_matters(folder):
    settings = CorpusSettings(source=str(folder))
    first = corpus_digest(settings)
    assert corpus_digest(settings.model_copy(update={"processes": 7})) == first
    assert corpus_digest(CorpusSettings(source=(str(folder), str(folder / "b.txt")))) == first
    for change in (
        {"deduplicate": False},
        {"validation": 0.1},
        {"document": "line"},
        {"limit": 5},
        {"min_characters": 3},
    ):
        assert corpus_digest(settings.model_copy(update=change)) != first
    os.utime(folder / "b.txt", ns=(1, 1))
    touched = corpus_digest(settings)
    assert touched != first
    (folder / "b.txt").write_text("xy")
    os.utime(folder / "b.txt", ns=(1, 1))
    assert corpus_digest(settings) != touched


def _put(path, text, inode=False):
    """Write a text under the old modification time: in place, or as a new file moved over the old one."""
    time.sleep(0.02)  # several ticks of the file system's clock
    stamp = path.stat().st_mtime_ns
    target_path = path.with_name("beside") if inode else path
    target_path.write_text(text)
    os.utime(target_path, ns=(stamp, stamp))
    target_path.replace(path)
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (stamp, len(text))


@pytest.mark.parametrize("inode", [False, True])
@pytest.mark.parametrize("aged", [False, True])
def test_another_content_of_equal_size_and_time_is_another_key(folder, monkeypatch, inode, aged):
    if aged:  # as if the file had been there for long when it was first hashed
        monkeypatch.setattr(file_contents, "SETTLED", -(10**18))
    path, settings = folder / "b.txt", CorpusSettings(source=str(folder))
    first = corpus_digest(settings)
    _put(path, "y", inode)
    changed = corpus_digest(settings)
    assert changed != first
    assert corpus_digest(settings) == changed
    _put(path, "x", inode)
    assert corpus_digest(settings) == first
    _put(path, "z", inode)
    assert corpus_digest(settings) not in (first, changed)


def test_a_content_is_known_after_times_in_between(folder):
    path, settings = folder / "b.txt", CorpusSettings(source=str(folder))
    first, stamp = corpus_digest(settings), path.stat().st_mtime_ns
    os.utime(path, ns=(1, 1))
    corpus_digest(settings)
    path.write_text("y")
    os.utime(path, ns=(stamp, stamp))
    assert corpus_digest(settings) != first


def test_unchanged_files_are_hashed_once(folder, monkeypatch):
    monkeypatch.setattr(file_contents, "SETTLED", -(10**18))
    hashed, original = [], file_contents._digest
    monkeypatch.setattr(file_contents, "_digest", lambda path: hashed.append(path.name) or original(path))
    settings = CorpusSettings(source=str(folder))
    first = corpus_digest(settings)
    num_hashed = len(hashed)
    assert corpus_digest(settings) == first and len(hashed) == num_hashed > 0
    (folder / "b.txt").chmod(0o640)
    assert corpus_digest(settings) == first
    assert hashed[num_hashed:] == ["b.txt"]


def test_damaged_records_and_an_unwritable_cache_are_no_errors(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "own"))
    settings = CorpusSettings(source=str(folder))
    first = corpus_digest(settings)
    for path in (tmp_path / "own/files").iterdir():
        path.write_text('{"b.txt": 3}')
    assert corpus_digest(settings) == first
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "taken"))
    assert corpus_digest(settings) == first


def test_digest_of_samples_and_hub():
    keys = {
        corpus_digest(CorpusSettings(source=source))
        for source in (
            "builtin:microworld?size=3",
            "builtin:microworld?size=4",
            "hub:a/b",
            "hub:a/b?split=test",
            "hub:a/c",
        )
    }
    assert len(keys) == 5
