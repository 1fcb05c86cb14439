"""A processed corpus is the same whether built in one pass, interrupted anywhere, or in several processes."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.corpus import pipeline as reading_module
from meristem.corpus import processed_corpus
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.corpus_parts import folder_lock
from meristem.corpus.dedup.append_only_array import AppendOnlyArray
from meristem.corpus.document import Document
from meristem.corpus.pipeline import CorpusReader, ReadProgress
from meristem.corpus.processed_corpus import load_history, processed_corpus_dir
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.split import MAX_QUOTA_DOCUMENTS

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


def stories(count: int, seed: int) -> list[str]:
    """Texts of which every third is nearly the same as an earlier one, and every seventh exactly."""
    rng = random.Random(seed)
    texts: list[str] = []
    for number in range(count):
        if number % 7 == 6:
            texts.append(rng.choice(texts))
            continue
        if number % 3 == 2:
            words = rng.choice(texts).split()
            words[rng.randrange(len(words))] = "changed"
        else:
            words = ["".join(rng.choices(SYLLABLES, k=3)) for _ in range(60)]
        texts.append(" ".join(words))
    return texts


def write(path: Path, texts: list[str]) -> Path:
    """A text file of a document a line, or a jsonl file, by its name."""
    lines = [json.dumps({"text": text}) for text in texts] if path.suffix == ".jsonl" else texts
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces, batches and parts so small that a few hundred documents make several."""
    monkeypatch.setattr("meristem.corpus.read_ranges.RANGE_BYTES", 20_000)
    monkeypatch.setattr("meristem.corpus.document_batches.BATCH_CHARACTERS", 5_000)
    monkeypatch.setattr("meristem.corpus.processed_corpus.PART_BYTES", 30_000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    write(folder / "b.txt", stories(300, 1))
    write(folder / "c.jsonl", stories(250, 2))
    write(folder / "d.txt", ["one\u0000two three four five six", *stories(40, 1)])
    return folder


def corpus(source: Path, **settings: Any) -> CorpusSettings:
    return CorpusSettings(source=str(source), document="line", **{"near_dedup": True, "processes": 1, **settings})


def read_processed(settings: CorpusSettings, folder: Path | None) -> tuple[list[Document], CorpusAccount]:
    corpus_reader = CorpusReader(settings, folder=folder)
    return list(corpus_reader), corpus_reader.account


def files(folder: Path) -> dict[str, bytes]:
    """The parts and what is kept for going on, byte for byte."""
    paths = [*(folder / "parts").iterdir(), *(path for path in (folder / "index").iterdir() if path.is_file())]
    return {path.name: path.read_bytes() for path in paths}


def test_parts_give_what_reading_without_them_gives(source, tmp_path):
    plain, plain_account = read_processed(corpus(source), None)
    documents, account = read_processed(corpus(source), tmp_path / "processed")
    assert documents == plain
    assert account == plain_account
    assert account.dropped["near duplicate"] > 100 and account.dropped["duplicate"] > 50
    reread, account_again = read_processed(corpus(source), tmp_path / "processed")
    assert (reread, account_again) == (documents, account)
    part_files = files(tmp_path / "processed")
    assert len(part_files) == 2 * 5 + 2 and "numbers" not in part_files
    part = json.loads(part_files["000001.json"])
    assert part["covers"] and part["files"][0][2] == (source / "b.txt").stat().st_size
    assert list(json.loads(part_files["000000.jsonl"].splitlines()[0])) == ["text", "place", "number", "language"]


def test_places_are_counted_from_the_start_of_their_file(source, tmp_path):
    lines = (source / "b.txt").read_text().split("\n")
    documents, _ = read_processed(corpus(source), tmp_path / "processed")
    of_file = [d for d in documents if d.location.startswith(str(source / "b.txt"))]
    assert len(of_file) > 100
    for document in of_file:
        assert lines[int(document.location.rpartition(":")[2]) - 1] == document.text


def test_processes_and_memory_change_nothing(source, tmp_path, monkeypatch):
    monkeypatch.setattr(reading_module, "MIN_POOL_BYTES", 1)
    read_processed(corpus(source), tmp_path / "one")
    read_processed(corpus(source, processes=2, near_dedup={"memory_mb": 1}), tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


class Stopped(BaseException):
    """As good as a kill: nobody expects it."""


def test_a_pass_interrupted_at_any_write_resumes_to_the_same_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("meristem.corpus.processed_corpus.PART_BYTES", 6_000)
    monkeypatch.setattr("meristem.corpus.read_ranges.RANGE_BYTES", 5_000)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no power is cut here, and it would take most of the time
    settings = corpus(write(tmp_path / "a.txt", stories(60, 1)), near_dedup={"drop": False})
    real: dict[Any, Callable[..., Any]] = {
        (Path, "replace"): Path.replace,
        (os, "fsync"): os.fsync,
        (AppendOnlyArray, "append"): AppendOnlyArray.append,
    }

    def stopped(fail_at: int, folder: Path) -> bool:
        """Whether a pass was stopped at its n-th write to the index, flush or rename."""
        calls = itertools.count(1)

        def until(call: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arguments: Any) -> Any:
                if next(calls) == fail_at:
                    raise Stopped
                return call(*arguments)

            return wrapped

        with monkeypatch.context() as patch:
            for (owner, name), call in real.items():
                patch.setattr(owner, name, until(call))
            try:
                read_processed(settings, folder)
            except Stopped:
                return True
        return False

    assert not stopped(0, tmp_path / "whole")
    expected_files = files(tmp_path / "whole")
    assert len(expected_files) >= 2 * 3 + 3
    fail_at = 0
    while stopped(fail_at := fail_at + 1, tmp_path / f"at-{fail_at}"):
        read_processed(settings, tmp_path / f"at-{fail_at}")
        assert files(tmp_path / f"at-{fail_at}") == expected_files
    assert fail_at > 40
    num_interruptions = sum(itertools.takewhile(bool, (stopped(25, tmp_path / "often") for _ in range(99))))
    assert num_interruptions >= 2  # again and again, each time a little further
    assert files(tmp_path / "often") == expected_files


def test_what_a_killed_process_left_is_cleared(source, tmp_path):
    read_processed(corpus(source), tmp_path / "whole")
    expected_files = files(tmp_path / "whole")
    for path in list((tmp_path / "whole/parts").iterdir()):
        if int(path.stem) >= 3:
            path.unlink()
    (tmp_path / "whole/parts/000003.jsonl").write_text("half a li")
    (tmp_path / "whole/parts/000003.json.partial").write_text("{")
    with (tmp_path / "whole/index/signatures").open("ab") as file:
        file.write(b"half a row")
    read_processed(corpus(source), tmp_path / "whole")
    assert files(tmp_path / "whole") == expected_files


@pytest.mark.parametrize(
    ("name", "problem"),
    [("000002.jsonl", "damaged"), ("000001.json", "damaged"), ("000002.jsonl", "missing"), ("000001.json", "missing")],
)
def test_a_damaged_or_missing_part_is_named_and_made_again(source, tmp_path, name, problem):
    read_processed(corpus(source), tmp_path / "processed")
    expected_files = files(tmp_path / "processed")
    path = tmp_path / "processed/parts" / name
    if problem == "missing":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    _, account = read_processed(corpus(source), tmp_path / "processed")
    assert account.warnings[0] == f"{path}: {problem}; processing again from there"
    assert files(tmp_path / "processed") == expected_files


def test_a_damaged_index_is_noticed_where_it_is_needed(source, tmp_path):
    read_processed(corpus(source), tmp_path / "processed")
    expected_files = files(tmp_path / "processed")
    path = tmp_path / "processed/index/signatures"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert not read_processed(corpus(source), tmp_path / "processed")[1].warnings
    write(source / "e.txt", stories(30, 9))
    _, account = read_processed(corpus(source), tmp_path / "processed")
    assert "signatures: damaged at the entries of" in account.warnings[0]
    current_files = files(tmp_path / "processed")
    assert {name: current_files[name] for name in expected_files if name[0] == "0"} == {
        n: d for n, d in expected_files.items() if n[0] == "0"
    }


def test_new_files_follow_and_are_compared_with_the_old(source, tmp_path):
    first, first_account = read_processed(corpus(source), tmp_path / "processed")
    before = files(tmp_path / "processed")
    old = (source / "b.txt").read_text().split("\n")
    fresh = [text for index, text in enumerate(stories(60, 77)) if index % 7 != 6 and index % 3 != 2]
    near_duplicates = [f"{text} too" for text in old[:8:7]]
    write(
        source / "a.txt", [*old[:5], *near_duplicates, *fresh]
    )  # sorted before all others, and yet it comes after them
    second, account = read_processed(corpus(source), tmp_path / "processed")
    assert [d.text for d in second] == [d.text for d in first] + fresh
    assert account.dropped["duplicate"] - first_account.dropped["duplicate"] >= 4
    assert account.dropped["near duplicate"] - first_account.dropped["near duplicate"] >= len(near_duplicates)
    current_files = files(tmp_path / "processed")
    assert all(current_files[name] == data for name, data in before.items() if name.startswith("0"))
    assert not account.warnings
    reread, _ = read_processed(corpus(source), tmp_path / "processed")
    assert reread == second


def test_files_that_came_before_the_end_do_not_disturb_the_pass(source, tmp_path):
    """Stopped, then a file came: as if the pass had been finished first."""
    read_processed(corpus(source), tmp_path / "straight")
    for path in sorted((tmp_path / "straight/parts").iterdir())[4:]:
        path.unlink()
    write(source / "a.txt", stories(50, 5))
    read_processed(corpus(source), tmp_path / "straight")
    (source / "a.txt").rename(tmp_path / "a.txt")
    read_processed(corpus(source), tmp_path / "finished")
    (tmp_path / "a.txt").rename(source / "a.txt")
    read_processed(corpus(source), tmp_path / "finished")
    assert files(tmp_path / "straight") == files(tmp_path / "finished")


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_a_file_that_changed_or_went_away_is_told(source, tmp_path, change):
    read_processed(corpus(source), tmp_path / "processed")
    state = load_history(corpus(source), tmp_path / "processed")[0]
    if change == "gone":
        (source / "c.jsonl").unlink()
    else:
        write(source / "c.jsonl", stories(100, 4))
    documents, account = read_processed(corpus(source), tmp_path / "processed")
    assert account.warnings == [
        f"{source / 'c.jsonl'}: changed or deleted since the corpus was processed; processing all of it again"
    ]
    assert documents == read_processed(corpus(source), None)[0]
    history = load_history(corpus(source), tmp_path / "processed")[0]
    assert history.origin != state.origin and history.times == 1


def test_near_duplicates_may_be_kept_on_one_side(tmp_path):
    rng, half = random.Random(3), 600
    words = [["".join(rng.choices(SYLLABLES, k=3)) for _ in range(100)] for _ in range(half)]
    texts = [" ".join(variant) for variant in (*words, *([*word[:50], "changed", *word[51:]] for word in words))]
    path = write(tmp_path / "a.txt", texts)
    settings = corpus(path, near_dedup={"drop": False}, validation=0.2, test=0.2)
    documents, account = read_processed(settings, tmp_path / "processed")
    assert documents == read_processed(settings, None)[0]
    assert account.dropped["near duplicate"] == 0
    assert account.kept == len(texts) > MAX_QUOTA_DOCUMENTS
    split = {d.text: d.split for d in documents}
    num_same_split = sum(split[text] == split[other] for text, other in zip(texts[:half], texts[half:], strict=True))
    assert num_same_split == half
    splits_by_text = {
        d.text: d.split for d in read_processed(corpus(path, near_dedup=None, validation=0.2, test=0.2), None)[0]
    }
    assert (
        sum(
            splits_by_text[text] == splits_by_text[other]
            for text, other in zip(texts[:half], texts[half:], strict=True)
        )
        < 0.6 * half
    )


@pytest.mark.parametrize("limit", [1, 120, 100_000])
def test_the_limit_holds(source, tmp_path, limit):
    settings = corpus(source, limit=limit)
    documents, account = read_processed(settings, tmp_path / "processed")
    assert (documents, account) == read_processed(settings, None)
    assert len(documents) <= limit
    write(source / "e.txt", stories(30, 9))
    grown_documents, _ = read_processed(settings, tmp_path / "processed")
    assert len(grown_documents) == limit if limit < 1_000 else len(grown_documents) > len(documents)


def test_a_corpus_without_a_folder_is_processed_while_reading(source, read_all=read_processed):
    documents, account = read_all(corpus(source), None)
    assert account.dropped["near duplicate"] > 100
    assert len(documents) == account.kept


def test_steps_alone_are_worth_keeping_too(tmp_path):
    english = "It was the best of times and it was the worst of times, and that is what he said to them. "
    german = "Es war die beste und auch die schlechteste Zeit, und das ist es, was er zu ihnen gesagt hat. "
    path = write(tmp_path / "a.txt", [f"{text}{number}" for number in range(20) for text in (english, german)])
    settings = corpus(path, near_dedup=None, languages=["en"])
    documents, account = read_processed(settings, processed_corpus_dir(settings))
    assert (documents, account) == read_processed(settings, None)
    assert {d.language for d in documents} == {"en"}
    assert account.dropped == {"another language: de": 20}
    assert (tmp_path / "cache/corpora").is_dir()


def test_what_is_not_in_files_is_not_kept_but_compared_all_the_same(tmp_path):
    settings = CorpusSettings(source="builtin:microworld?size=60", near_dedup={"jaccard": 0.3, "words": 1})
    documents, account = read_processed(settings, tmp_path / "processed")
    assert account.dropped["near duplicate"] > 0
    assert account.kept == len(documents) > 0
    assert not (tmp_path / "processed").exists()


def test_progress_is_reported_while_processing_and_while_reading(source, tmp_path):
    progress_reports: list[ReadProgress] = []
    list(CorpusReader(corpus(source), progress=progress_reports.append, folder=tmp_path / "processed"))
    size = sum(path.stat().st_size for path in source.iterdir())
    assert next(progress for progress in reversed(progress_reports) if progress.total == size).bytes == size
    assert progress_reports[-1].total != size and progress_reports[-1].bytes == progress_reports[-1].total


def test_a_target_file_is_known_by_its_place_and_a_column_by_its_name(source, tmp_path, monkeypatch):
    (source / "other.en").write_text("one\ntwo")
    (source / "other.de").write_text("eins\nzwei")
    monkeypatch.chdir(source)
    settings = CorpusSettings(source="other.en", target="other.de", near_dedup=True)
    other = CorpusSettings(source=str(source / "other.en"), target=str(source / "other.de"), near_dedup=True)
    assert processed_corpus_dir(settings) == processed_corpus_dir(other)
    assert {d.text for d in CorpusReader(settings, folder=processed_corpus_dir(settings))} == {
        "one\x1eeins",
        "two\x1ezwei",
    }
    columns = CorpusSettings(source=str(source / "c.jsonl"), target="text", near_dedup=True)
    folder = processed_corpus_dir(columns)
    monkeypatch.chdir(tmp_path)
    assert processed_corpus_dir(columns) == folder


def test_where_a_corpus_is_kept(source, tmp_path, monkeypatch):
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    folder = processed_corpus_dir(corpus(source))
    assert folder is not None and folder.parent == tmp_path / "cache/corpora"
    equivalent_settings = [
        corpus(source, processes=2),
        corpus(source, near_dedup={"memory_mb": 7}),
        corpus(source, validation=0.3),
    ]
    assert {processed_corpus_dir(settings) for settings in equivalent_settings} == {folder}
    monkeypatch.chdir(source.parent)
    assert processed_corpus_dir(corpus(Path("text"))) == folder
    write(source / "z.txt", ["more"])
    assert processed_corpus_dir(corpus(source)) == folder
    assert processed_corpus_dir(corpus(source, near_dedup={"jaccard": 0.7})) != folder
    assert processed_corpus_dir(corpus(source, near_dedup=None)) is None
    assert processed_corpus_dir(CorpusSettings(source="builtin:pydocs", near_dedup=True)) is None


def test_a_second_pass_waits_for_the_first(source, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("meristem.corpus.corpus_parts.SILENT_WAIT_SECONDS", 0.1)
    if os.fork() == 0:  # a lock is between processes
        with folder_lock(tmp_path / "processed", "processing this corpus"):
            (tmp_path / "held").touch()
            while not (tmp_path / "over").exists():
                pass
        os._exit(0)
    while not (tmp_path / "held").exists():
        pass
    threading.Timer(0.5, (tmp_path / "over").touch).start()
    documents, _ = read_processed(corpus(source), tmp_path / "processed")
    os.wait()
    assert documents == read_processed(corpus(source), tmp_path / "alone")[0]
    assert "another process is processing this corpus; waiting for it to finish" in caplog.text


def test_a_corpus_without_usable_documents_is_an_error(tmp_path):
    path = write(tmp_path / "a.txt", ["short"])
    with pytest.raises(MeristemError, match="no usable documents"):
        read_processed(corpus(path, min_characters=100), tmp_path / "processed")


def test_a_hostile_description_is_only_damaged(source, tmp_path):
    read_processed(corpus(source), tmp_path / "processed")
    (tmp_path / "processed/turns.json").write_text("[" * 100_000)
    (tmp_path / "processed/parts/000000.json").write_bytes(b"\xff\xfe")
    _, account = read_processed(corpus(source), tmp_path / "processed")
    assert "damaged; processing the corpus again" in account.warnings[0]
    assert processed_corpus.PART_BYTES == 30_000
