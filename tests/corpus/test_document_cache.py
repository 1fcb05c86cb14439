"""One reading for tokenizer and shards: documents are kept from the first pass for the second."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from rich.console import Console

from meristem.corpus import document_cache, pipeline
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document_cache import DocumentCache
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.split import UnsplitDocument
from meristem.dataset.prepare import prepare_dataset, prepare_tokenizer
from meristem.dataset.settings import DatasetSettings
from meristem.tokenizers.settings import TokenizerSettings


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusSettings:
    lines = [f"the old sailor sold {number} boats\ud800" for number in range(40)] + ["", "港口很安静", "港口很安静"]
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    (folder / "b.png").write_bytes(b"\x89PNG")
    return CorpusSettings(source=str(folder), document="line", processes=1)


def cached_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for kind in ("tokenizers", "stores")
        for path in sorted((folder / kind).rglob("*"))
        if path.is_file()
    }


def prepare(corpus: CorpusSettings) -> None:
    console = Console(quiet=True)
    tokenizer = prepare_tokenizer(TokenizerSettings(kind="wordpiece"), [corpus], console)
    prepare_dataset(corpus, tokenizer, DatasetSettings(), keep_words=False, console=console)


def test_tokenizer_and_shards_are_the_same_as_from_two_readings(
    corpus: CorpusSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_reads = 0
    read_batches = pipeline.read_batches

    def counted(*arguments):
        nonlocal num_reads
        num_reads += 1
        return read_batches(*arguments)

    monkeypatch.setattr(pipeline, "read_batches", counted)
    results = []
    for name, free_share in (("once", 4), ("twice", 1 << 60)):  # no space: nothing is kept
        monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / name))
        monkeypatch.setattr(document_cache, "FREE_SHARE", free_share)
        num_reads = 0
        prepare(corpus)
        results.append((cached_files(tmp_path / name), num_reads))
        assert not list((tmp_path / name).glob("documents/*/parts/*"))
    assert results[0][0] == results[1][0] and len(results[0][0]) > 4
    assert (results[0][1], results[1][1]) == (1, 2)


def test_counts_are_those_of_the_reading(corpus: CorpusSettings) -> None:
    first = CorpusReader(corpus, cache=DocumentCache("key"), store=True)
    documents = list(first)
    second = CorpusReader(corpus, cache=DocumentCache("key"))
    assert list(second) == documents and second.account == first.account
    assert second.account.skipped == {".png": 1} and second.account.dropped == {"duplicate": 1}


def test_what_is_not_complete_is_not_there(corpus: CorpusSettings) -> None:
    cache = DocumentCache("key")
    documents = [UnsplitDocument(f"text {number}", f"a:{number}", 0.5) for number in range(1000)]
    stopped = cache.store(documents, CorpusAccount())
    next(stopped)
    stopped.close()
    assert cache.load() is None and not list(cache.folder.glob("parts/*"))
    list(CorpusReader(corpus, cache=cache, store=True))
    assert cache.load() is not None
    path = cache.folder / "parts" / "000000.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert cache.load() is None
    cache.delete()
    assert not cache.folder.exists() and cache.load() is None
