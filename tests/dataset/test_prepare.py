"""Tokenizers and datasets are built once and found in the cache by a key of their inputs."""

from __future__ import annotations

import io
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.corpus.corpus_parts import folder_lock
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.manifest import MANIFEST_FILE
from meristem.dataset.prepare import PreparedDataset, cache_dir, prepare_dataset, prepare_tokenizer
from meristem.dataset.settings import DatasetSettings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer

LINES = [f"On day {number} the sailor sold {number % 7} boats." for number in range(100)]
WORDS = TokenizerSettings(kind="wordpiece", vocab_size=200)


@dataclass
class DatasetPipeline:
    """A text, a cache of its own, and what was output."""

    text: Path
    output: io.StringIO = field(default_factory=io.StringIO)

    @property
    def corpus(self) -> CorpusSettings:
        return CorpusSettings(source=str(self.text), document="line", processes=1, validation=0.1, test=0.1)

    @property
    def console(self) -> Console:
        return Console(file=self.output, width=500)

    def tokenizer(self, settings: TokenizerSettings = WORDS) -> Tokenizer:
        return prepare_tokenizer(settings, [self.corpus], self.console)

    def store(self, *, words: bool = False, shard_tokens: int = 10_000, key: str | None = None) -> PreparedDataset:
        return prepare_dataset(
            self.corpus,
            self.tokenizer(),
            DatasetSettings(shard_tokens=shard_tokens),
            keep_words=words,
            console=self.console,
            cache_key=key,
        )


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetPipeline:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES), encoding="utf-8")
    return DatasetPipeline(text)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", "/somewhere")
    assert cache_dir() == Path("/somewhere")
    monkeypatch.delenv("MERISTEM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/meristem")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache/meristem"


def test_a_tokenizer_is_trained_once(pipeline: DatasetPipeline) -> None:
    first, second = pipeline.tokenizer(), pipeline.tokenizer()
    assert first.digest == second.digest
    assert pipeline.output.getvalue().count("Training a wordpiece tokenizer of 200 tokens") == 1


def test_other_text_or_settings_train_another_tokenizer(pipeline: DatasetPipeline) -> None:
    first = pipeline.tokenizer()
    assert pipeline.tokenizer(TokenizerSettings(kind="wordpiece", vocab_size=64)).digest != first.digest
    pipeline.text.write_text("\n".join(LINES).replace("sailor", "gardener"), encoding="utf-8")
    assert pipeline.tokenizer().digest != first.digest
    assert pipeline.output.getvalue().count("Training a") == 3


def test_words_of_held_out_text_are_not_learned(pipeline: DatasetPipeline) -> None:
    """Every line has a letter of its own; a tokenizer that read the held-out lines would know them all."""
    letters = [chr(0x4E00 + number) for number in range(200)]
    lines = [f"{letter} is here, and so is all the rest of it." for letter in letters]
    pipeline.text.write_text("\n".join(lines), encoding="utf-8")
    tokenizer = pipeline.tokenizer(TokenizerSettings(kind="characters", vocab_size=1000))
    num_known_letters = sum(tokenizer.token_to_id(letter) is not None for letter in letters)
    store = pipeline.store().dataset
    held_out = store.split("validation").documents + store.split("test").documents
    assert held_out > 10
    assert num_known_letters == store.split("train").documents == 200 - held_out


def test_a_tokenizer_of_ones_own_is_used_as_it_is(pipeline: DatasetPipeline, tmp_path: Path) -> None:
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sailor"]), encoding="utf-8")
    tokenizer = pipeline.tokenizer(TokenizerSettings(path=str(vocab_file)))
    assert (tokenizer.vocab_size, tokenizer.token_to_id("sailor")) == (7, 6)
    assert pipeline.output.getvalue() == ""


def test_a_half_written_tokenizer_is_not_taken_for_one(pipeline: DatasetPipeline) -> None:
    digest = pipeline.tokenizer().digest
    (file,) = cache_dir().glob("tokenizers/*/tokenizer.json")
    file.rename(file.with_name("tokenizer.json.partial"))
    assert pipeline.tokenizer().digest == digest
    assert pipeline.output.getvalue().count("Training a") == 2


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{}"])
def test_a_damaged_tokenizer_in_the_cache_is_trained_again(pipeline: DatasetPipeline, content: bytes) -> None:
    digest = pipeline.tokenizer().digest
    (file,) = cache_dir().glob("tokenizers/*/tokenizer.json")
    file.write_bytes(content)
    assert pipeline.tokenizer().digest == digest
    assert f"{file}: damaged; training the tokenizer again" in pipeline.output.getvalue()
    assert pipeline.tokenizer().digest == digest
    assert pipeline.output.getvalue().count("Training a") == 2


def test_two_runs_on_a_cold_cache_train_one_tokenizer(pipeline: DatasetPipeline) -> None:
    digest = pipeline.tokenizer().digest
    (file,) = cache_dir().glob("tokenizers/*/tokenizer.json")
    finished = file.rename(file.with_name("elsewhere"))
    ready = pipeline.text.with_name("ready")
    if os.fork() == 0:  # a lock is between processes
        with folder_lock(file.parent, "training"):
            ready.touch()
            time.sleep(0.3)
            finished.rename(file)
        os._exit(0)
    while not ready.exists():
        time.sleep(0.01)
    assert pipeline.tokenizer().digest == digest
    os.wait()
    assert pipeline.output.getvalue().count("Training a") == 1


def test_shards_are_made_once_and_accounted_for(pipeline: DatasetPipeline) -> None:
    first, second = pipeline.store(), pipeline.store()
    assert first.cache_key == second.cache_key
    assert pipeline.output.getvalue().count("100 documents read; 100 kept") == 1
    assert {"train", "validation", "test"} == set(first.dataset.splits)


def test_what_was_wrong_with_the_text_is_said(pipeline: DatasetPipeline) -> None:
    pipeline.text.write_bytes("\n".join(LINES).encode() + b"\n\xff\xfe broken \xe9\n")
    pipeline.store()
    assert str(pipeline.text) in pipeline.output.getvalue()


@pytest.mark.parametrize("changed_input", ["text", "shard_tokens", "words"])
def test_anything_else_makes_other_shards(pipeline: DatasetPipeline, changed_input: str) -> None:
    first = pipeline.store()
    if changed_input == "text":
        pipeline.text.write_text("\n".join(LINES[:90]), encoding="utf-8")
    other = pipeline.store(
        words=changed_input == "words", shard_tokens=500 if changed_input == "shard_tokens" else 10_000
    )
    assert other.cache_key != first.cache_key


def test_a_run_keeps_the_shards_it_began_with(pipeline: DatasetPipeline) -> None:
    tokenizer, first = pipeline.tokenizer(), pipeline.store()
    settings = DatasetSettings(shard_tokens=10_000)
    for change in (lambda: pipeline.text.write_text("something else\n" * 3, encoding="utf-8"), pipeline.text.unlink):
        change()
        reopened = prepare_dataset(
            pipeline.corpus, tokenizer, settings, keep_words=False, console=pipeline.console, cache_key=first.cache_key
        )
        assert reopened.cache_key == first.cache_key
        assert len(reopened.dataset.split("train")) == len(first.dataset.split("train"))


def test_shards_that_are_gone_are_made_again_only_from_the_same_text(pipeline: DatasetPipeline) -> None:
    first = pipeline.store()
    shutil.rmtree(cache_dir() / "stores")
    assert pipeline.store(key=first.cache_key).cache_key == first.cache_key
    shutil.rmtree(cache_dir() / "stores")
    stamp = pipeline.text.stat().st_mtime_ns
    pipeline.text.write_text("\n".join(reversed(LINES)), encoding="utf-8")
    os.utime(pipeline.text, ns=(stamp + 10**9, stamp + 10**9))
    with pytest.raises(MeristemError, match="the text has changed since this run started"):
        pipeline.store(key=first.cache_key)


def test_another_text_of_equal_size_and_time_gets_its_own_shards(pipeline: DatasetPipeline) -> None:
    first, stamp = pipeline.store(), pipeline.text.stat().st_mtime_ns
    old = pipeline.text.read_text(encoding="utf-8")
    pipeline.text.write_text(old.replace("the", "teh"), encoding="utf-8")
    os.utime(pipeline.text, ns=(stamp, stamp))
    second = pipeline.store()
    streams = [prepared.dataset.split("train") for prepared in (first, second)]
    assert first.cache_key != second.cache_key
    assert streams[0].tokens(0, len(streams[0])).tolist() != streams[1].tokens(0, len(streams[1])).tolist()


def test_an_interrupted_pass_is_resumed(pipeline: DatasetPipeline) -> None:
    first = pipeline.store(shard_tokens=200)
    stream = first.dataset.split("train")
    expected_tokens = stream.tokens(0, len(stream)).tolist()
    (cache_dir() / "stores" / first.cache_key / MANIFEST_FILE).unlink()
    reopened = pipeline.store(shard_tokens=200)
    stream = reopened.dataset.split("train")
    assert reopened.cache_key == first.cache_key
    assert stream.tokens(0, len(stream)).tolist() == expected_tokens
