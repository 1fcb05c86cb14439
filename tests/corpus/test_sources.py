import os
from pathlib import Path

import pytest

from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import Builtin, File, Hub
from meristem.corpus.sources import digest, resolve, survey
from meristem.errors import MeristemError


def found(*sources: object) -> list[str]:
    return [source.name for source in resolve(CorpusSettings(source=tuple(map(str, sources))))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt.gz", "deep/er/c.JSONL", "z.csv.zst", "p.png", "noend", ".hidden.txt", ".git/d.txt"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path / "data"


def test_folder_recursively_sorted_and_counted(folder):
    whole = survey(CorpusSettings(source=str(folder)))
    names = [Path(source.name).relative_to(folder).as_posix() for source in whole.sources]
    assert names == ["a.txt.gz", "b.txt", "deep/er/c.JSONL", "z.csv.zst"]
    assert whole.skipped == {".png": 1, "(no ending)": 1, "(hidden)": 1}
    assert [(s.format, s.compression) for s in whole.sources if isinstance(s, File)] == [
        ("text", ".gz"), ("text", ""), ("jsonl", ""), ("table", ".zst")]


def test_globs_several_sources_and_repeats(folder):
    assert found(folder / "**/*.JSONL") == [str(folder / "deep/er/c.JSONL")]
    assert found(folder / "b.txt", folder) == [
        str(folder / name) for name in ("b.txt", "a.txt.gz", "deep/er/c.JSONL", "z.csv.zst")]


def test_relative_paths_and_globs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert found("b.txt", "*.gz") == ["b.txt", "a.txt.gz"]


def test_names_that_are_no_paths():
    assert resolve(CorpusSettings(source="builtin:microworld?size=3")) == (Builtin("microworld?size=3"),)
    assert resolve(CorpusSettings(source="owner/name")) == (Hub("owner/name"),)
    assert resolve(CorpusSettings(source="hub:o/n?config=c&split=test")) == (Hub("o/n", "c", "test"),)


def test_messages_say_what_where_and_what_to_do(folder, monkeypatch):
    (folder / "pictures").mkdir()
    (folder / "pictures/x.png").write_text("x")
    (folder / "nothing").mkdir()
    monkeypatch.chdir(folder)
    for source, says in {
        "b.tx": "did you mean b.txt",
        "deep/err/c.JSONL": "did you mean er",
        "deep/eer": "did you mean er",
        "missing.txt": "'missing.txt' is not in",
        "*.parquet": "matches no file",
        "*.png": "matches only files that cannot be read",
        "pictures": r"holds \.png \(1\); readable are \.txt",
        "nothing": "no files at all",
        "p.png": r"files ending in \.png cannot be read; readable are",
        "noend": "without an ending",
        "builtin:pydoc": "did you mean pydocs",
        "hub:o/n?spilt=test": "did you mean split",
        "hub:": "wants a name",
    }.items():
        with pytest.raises(MeristemError, match=says):
            resolve(CorpusSettings(source=source))


def test_digest_follows_what_matters(folder):
    settings = CorpusSettings(source=str(folder))
    first = digest(settings)
    assert digest(settings.model_copy(update={"processes": 7})) == first
    assert digest(CorpusSettings(source=(str(folder), str(folder / "b.txt")))) == first
    for change in ({"deduplicate": False}, {"validation": 0.1}, {"document": "line"}, {"limit": 5}, {"shortest": 3}):
        assert digest(settings.model_copy(update=change)) != first
    os.utime(folder / "b.txt", ns=(1, 1))
    touched = digest(settings)
    assert touched != first
    (folder / "b.txt").write_text("xy")
    os.utime(folder / "b.txt", ns=(1, 1))
    assert digest(settings) != touched


def test_digest_of_samples_and_hub():
    keys = {digest(CorpusSettings(source=source)) for source in (
        "builtin:microworld?size=3", "builtin:microworld?size=4", "hub:a/b", "hub:a/b?split=test", "hub:a/c")}
    assert len(keys) == 5
