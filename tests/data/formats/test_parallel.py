"""Reader for pairs of line-aligned files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.paired_text import split_pair
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings


def corpus(tmp_path: Path, source: str, target: str, names: tuple[str, str] = ("a.en", "a.de")) -> CorpusSettings:
    for name, text in zip(names, (source, target), strict=True):
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    paths = [str(tmp_path / name) for name in names]
    return CorpusSettings(source=paths[0], target=paths[1], validation=0, test=0, processes=1)


@pytest.mark.parametrize("names", [("a.en", "a.de"), ("a.txt", "b.txt"), ("a.en.gz", "a.de"), ("noending", "other")])
def test_lines_are_paired_in_order(tmp_path: Path, names: tuple[str, str]) -> None:
    corpus_reader = CorpusReader(corpus(tmp_path, "one\ntwo\n\nfour", "eins\nzwei\nleer\nvier\n", names))
    documents = list(corpus_reader)
    assert [split_pair(document.text)[:2] for document in documents] == [
        ("one", "eins"),
        ("two", "zwei"),
        ("four", "vier"),
    ]
    assert [document.location.rpartition(":")[2] for document in documents] == ["1", "2", "4"]
    assert corpus_reader.account.dropped == {"empty": 1}
    assert corpus_reader.account.bytes == sum((tmp_path / name).stat().st_size for name in names)


@pytest.mark.parametrize(
    ("source", "target", "counts"), [("a\nb\nc", "x\ny", (3, 2)), ("a", "x\n" * 1200, (1, "1,200"))]
)
def test_unequal_files_are_refused_with_both_counts(
    tmp_path: Path, source: str, target: str, counts: tuple[int, int]
) -> None:
    message = f"a.en has {counts[0]} lines and .*a.de has {counts[1]}: .* is the first line without a partner"
    with pytest.raises(MeristemError, match=message):
        list(CorpusReader(corpus(tmp_path, source, target)))


def test_several_pairs_of_files(tmp_path: Path) -> None:
    first = corpus(tmp_path, "one", "eins")
    second = corpus(tmp_path, "two", "zwei", ("b.en", "b.de"))
    settings = CorpusSettings(source=(first.source, second.source), target=(first.target, second.target), processes=1)
    assert {split_pair(document.text)[:2] for document in CorpusReader(settings)} == {("one", "eins"), ("two", "zwei")}


def test_processes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meristem.corpus.pipeline.MIN_POOL_BYTES", 1)
    names = [(f"{n}.en", f"{n}.de") for n in range(3)]
    corpora = [corpus(tmp_path, f"a{n}\nb{n}\n", f"x{n}\ny{n}\n", pair) for n, pair in enumerate(names)]
    sources, targets = tuple(settings.source for settings in corpora), tuple(settings.target for settings in corpora)
    texts = [
        [d.text for d in CorpusReader(CorpusSettings(source=sources, target=targets, processes=number))]
        for number in (1, 2)
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 6
    with pytest.raises(MeristemError, match="has 2 lines and"):
        bad = corpus(tmp_path, "a\nb\n", "x\n", ("c.en", "c.de"))
        list(CorpusReader(CorpusSettings(source=(*sources, bad.source), target=(*targets, bad.target), processes=2)))
