"""Building a tokenized dataset: processes, interruptions, resuming."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.dataset import build as building
from meristem.dataset.build import BuildProgress, build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer

Tell = Callable[..., list[str]]
SMALL = DatasetSettings(shard_tokens=4_000)


def documents_of(texts: Iterable[str]) -> list[Document]:
    """One in ten for validation, one in ten for the test."""
    split = {3: "validation", 7: "test"}
    return [Document(text, f"test:{n}", split.get(n % 10, "train")) for n, text in enumerate(texts)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def slow(documents: Iterable[Document], pause: float) -> Iterator[Document]:
    for document in documents:
        time.sleep(pause)
        yield document


def in_child(work: Callable[[], Any]) -> int:
    """Fork and run; the child leaves without ceremony."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            os._exit(1)
    return child


def test_streams_hold_what_the_tokenizer_said(tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell) -> None:
    texts = generate_stories(100)
    store = build_dataset(documents_of(texts), tokenizer, tmp_path / "store", SMALL, processes=1)
    for split in ("train", "validation", "test"):
        train_texts = [document.text for document in documents_of(texts) if document.split == split]
        expected = np.concatenate([[*ids, tokenizer.end] for ids in tokenizer.encode_ids(train_texts)])
        stream = store.split(split)
        assert stream.tokens(0, len(stream)).tolist() == expected.tolist()
        assert stream.documents == len(train_texts)
        assert stream.bytes == sum(len(text.encode()) for text in train_texts)
    assert len(store.manifest.splits["train"]) > 1


def test_sentences_begin_where_the_text_says(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = build_dataset(
        [Document("Hi there. Go on!", "a:1"), Document("你好。大小！人", "a:2")], tokenizer, tmp_path, SMALL
    )
    stream = store.split("train")
    first, second = stream.document(0), stream.document(1)
    assert (first.start, second.stop) == (0, len(stream))
    starts = [*stream.sentences(0, len(stream)).tolist(), len(stream)]
    pieces = [tokenizer.decode(stream.tokens(start, stop)) for start, stop in pairwise(starts)]
    assert [piece.replace(" ", "").lower() for piece in pieces] == ["hithere.", "goon!", "你好。", "大小！", "人"]


@pytest.mark.parametrize("processes", [2, 4])
def test_the_number_of_processes_leaves_no_trace(
    tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    documents = documents_of(generate_stories(200))
    build_dataset(documents, tokenizer, tmp_path / "one", SMALL, processes=1)
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 2_500)
    build_dataset(iter(documents), tokenizer, tmp_path / "many", SMALL, processes=processes)
    assert contents(tmp_path / "one") == contents(tmp_path / "many")


def test_documents_without_a_token_are_left_out(tokenizer: Tokenizer, tmp_path: Path) -> None:
    texts = ["   ", "one", "", "two", "\n\n"]
    store = build_dataset([Document(text, "a:1") for text in texts], tokenizer, tmp_path, SMALL, processes=1)
    assert store.split("train").documents == 2
    assert store.split("train").bytes == 6


@pytest.mark.parametrize("texts", [[], ["  ", "\n"]])
def test_a_corpus_without_tokens_is_an_error(tokenizer: Tokenizer, tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(MeristemError, match="no document has a single token"):
        build_dataset([Document(text, "a:1") for text in texts], tokenizer, tmp_path, SMALL, processes=1)
    with pytest.raises(MeristemError, match="no complete dataset"):
        TokenDataset.open(tmp_path)


def test_killed_again_and_again_the_dataset_comes_out_the_same(
    tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 1_000)
    documents = documents_of(generate_stories(200))
    build_dataset(documents, tokenizer, tmp_path / "whole", SMALL, processes=1)
    chance = random.Random(5)
    finished_by_killed_passes = 0
    for trial in range(8):
        folder = tmp_path / f"killed-{trial}"
        for _ in range(1 + trial % 2):
            child = in_child(partial(build_dataset, slow(documents, 0.001), tokenizer, folder, SMALL, processes=2))
            time.sleep(chance.uniform(0.03, 0.3))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        finished_by_killed_passes += (folder / "journal.json").exists()
        build_dataset(documents, tokenizer, folder, SMALL, processes=1)
        assert contents(folder) == contents(tmp_path / "whole")
    assert finished_by_killed_passes >= 2


def test_a_fault_at_any_flush_or_rename_loses_nothing(
    tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(text, "a:1") for text in generate_stories(8)]
    settings = DatasetSettings(shard_tokens=500)
    build_dataset(documents, tokenizer, tmp_path / "whole", settings, processes=1)
    calls, fail_at = 0, 0

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        return called

    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    monkeypatch.setattr(Path, "replace", failing(Path.replace))
    while True:
        calls, fail_at = 0, fail_at + 1
        folder = tmp_path / f"fault-{fail_at}"
        try:
            build_dataset(documents, tokenizer, folder, settings, processes=1)
            break
        except OSError:
            assert not list(folder.rglob("*.tokens.partial"))
        build_dataset(documents, tokenizer, folder, settings, processes=1)
        assert contents(folder) == contents(tmp_path / "whole")
    assert fail_at > 20


def test_resuming_tokenizes_only_what_is_missing_and_new_documents_add_shards(
    tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = generate_stories(300)
    old = build_dataset([Document(text, "a:1") for text in texts[:200]], tokenizer, tmp_path, SMALL, processes=1)
    encoded: list[str] = []
    real = building.encode_batch
    monkeypatch.setattr(building, "encode_batch", lambda batch, *a, **k: encoded.extend(batch) or real(batch, *a, **k))
    build_dataset([Document(text, "a:1") for text in texts[:200]], tokenizer, tmp_path, SMALL, processes=1)
    assert encoded == []
    new = build_dataset([Document(text, "a:1") for text in texts], tokenizer, tmp_path, SMALL, processes=1)
    assert encoded == texts[200:]
    size = len(old.split("train"))
    assert (new.split("train").tokens(0, size) == old.split("train").tokens(0, size)).all()
    assert new.split("train").documents == 300


@pytest.mark.parametrize("change", ["another text", "fewer documents"])
def test_another_corpus_in_the_same_folder_is_refused(
    tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell, change: str
) -> None:
    documents = documents_of(generate_stories(100))
    build_dataset(documents, tokenizer, tmp_path, SMALL, processes=1)
    other = documents[:50] if change == "fewer documents" else [Document("Other.", "a:1"), *documents[1:]]
    with pytest.raises(MeristemError, match=r"text has changed since this dataset was started.*delete the folder"):
        build_dataset(other, tokenizer, tmp_path, SMALL, processes=1)


def test_other_settings_in_the_same_folder_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    build_dataset([Document("One.", "a:1")], tokenizer, tmp_path, SMALL, processes=1)
    with pytest.raises(MeristemError, match="another shard_tokens"):
        build_dataset([Document("One.", "a:1")], tokenizer, tmp_path, DatasetSettings(shard_tokens=9), processes=1)


def test_a_dead_worker_is_an_error_and_what_was_finished_stays(
    tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(text, "a:1") for text in generate_stories(250)]
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 2_000)
    real = building.encode_batch

    def deadly(texts: list[str], *arguments: Any, **options: Any) -> Any:
        if documents[200].text in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(texts, *arguments, **options)

    monkeypatch.setattr(building, "encode_batch", deadly)
    with pytest.raises(MeristemError, match="a tokenizer process died"):
        build_dataset(documents, tokenizer, tmp_path / "store", SMALL, processes=2)
    assert (tmp_path / "store" / "journal.json").exists()
    monkeypatch.setattr(building, "encode_batch", real)
    build_dataset(documents, tokenizer, tmp_path / "store", SMALL, processes=2)
    build_dataset(documents, tokenizer, tmp_path / "whole", SMALL, processes=1)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, None)])
def test_workers_end_with_their_parent(
    tokenizer: Tokenizer,
    tmp_path: Path,
    generate_stories: Tell,
    sent: signal.Signals,
    status: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 200)
    documents = documents_of(generate_stories(200, sentences=(1, 3)))
    child = in_child(lambda: build_dataset(slow(documents, 0.05), tokenizer, tmp_path, SMALL, processes=2))
    deadline = time.time() + 60
    while len(workers := psutil.Process(child).children()) < 2 and time.time() < deadline:
        time.sleep(0.02)
    assert len(workers) == 2
    os.kill(child, sent)
    _, code = os.waitpid(child, 0)
    assert status is None or os.waitstatus_to_exitcode(code) == status
    assert not psutil.wait_procs(workers, timeout=60)[1]


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_build_waits_for_the_first(
    tokenizer: Tokenizer,
    tmp_path: Path,
    generate_stories: Tell,
    killed: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("meristem.corpus.corpus_parts.SILENT_WAIT_SECONDS", 0.0)
    documents = documents_of(generate_stories(20, sentences=(1, 3)))
    dataset = build_dataset(documents, tokenizer, tmp_path / "whole", SMALL, processes=1)
    folder, consumed = tmp_path / "shared", []
    child = in_child(lambda: build_dataset(slow(documents, 0.05), tokenizer, folder, SMALL, processes=1))
    while not (folder / "train").exists():
        time.sleep(0.01)
    if killed:
        threading.Timer(0.2, os.kill, (child, signal.SIGKILL)).start()
    second = build_dataset(
        (consumed.append(document) or document for document in documents), tokenizer, folder, SMALL, processes=1
    )
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (-signal.SIGKILL if killed else 0)
    assert second.manifest == dataset.manifest
    assert len(consumed) == (20 if killed else 0)  # what the first has finished is opened, not made again
    assert "another process is building these shards; waiting" in caplog.text


def test_progress_counts_everything(tokenizer: Tokenizer, tmp_path: Path, generate_stories: Tell) -> None:
    progress: list[BuildProgress] = []
    store = build_dataset(
        documents_of(generate_stories(50)), tokenizer, tmp_path, SMALL, processes=1, progress=progress.append
    )
    assert progress[-1].documents == 50
    assert progress[-1].tokens == sum(len(store.split(split)) for split in store.splits)


def test_the_environment_is_left_as_it_was(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    build_dataset([Document("One.", "a:1")], tokenizer, tmp_path, SMALL, processes=1)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
