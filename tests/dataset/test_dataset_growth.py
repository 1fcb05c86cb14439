"""A growing processed corpus adds shards to its dataset; a run keeps the state it started with."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.split import MAX_QUOTA_DOCUMENTS
from meristem.dataset.prepare import PreparedDataset, cache_dir, prepare_dataset, prepare_tokenizer
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.settings import TokenizerSettings

WORDS = TokenizerSettings(kind="wordpiece", vocab_size=200)


VOCABULARY = ["the", "sailor", "sold", "ten", "old", "boats", "on", "day", "one", "near", "home"]


def lines(count: int, seed: int) -> str:
    rng = random.Random(seed)
    return "\n".join(" ".join(rng.choices(VOCABULARY, k=12)) + f" {seed} {number}." for number in range(count))


@dataclass
class DatasetPipeline:
    """A folder of texts, a cache of its own, and what was output."""

    folder: Path
    output: io.StringIO = field(default_factory=io.StringIO)

    def store(self, *, key: str | None = None, shard_tokens: int = 4_000) -> PreparedDataset:
        corpus = CorpusSettings(source=str(self.folder), document="line", processes=1, near_dedup=True, validation=0.1)
        console = Console(file=self.output, width=500)
        return prepare_dataset(
            corpus,
            prepare_tokenizer(WORDS, [corpus], console),
            DatasetSettings(shard_tokens=shard_tokens),
            keep_words=False,
            console=console,
            cache_key=key,
        )


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetPipeline:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "b.txt").write_text(lines(MAX_QUOTA_DOCUMENTS + 400, 1), encoding="utf-8")
    return DatasetPipeline(folder)


def tokens(store: TokenDataset, split: str = "train") -> list[int]:
    stream = store.split(split)
    return stream.tokens(0, len(stream)).tolist()


def test_new_files_add_shards_and_runs_keep_theirs(pipeline: DatasetPipeline) -> None:
    first = pipeline.store()
    before = {path: path.read_bytes() for path in first.dataset.folder.rglob("*.tokens")}
    assert len(before) > 2
    assert "@1-" in first.cache_key
    (pipeline.folder / "a.txt").write_text(lines(300, 2) + "\n" + lines(50, 1), encoding="utf-8")
    second = pipeline.store()
    assert second.cache_key.partition("@")[0] == first.cache_key.partition("@")[0]
    assert "@2-" in second.cache_key
    assert all(path.read_bytes() == data for path, data in before.items())
    for split in ("train", "validation", "test"):
        old, new = tokens(first.dataset, split), tokens(second.dataset, split)
        assert new[: len(old)] == old
        assert len(new) > len(old)
    assert (
        sum(second.dataset.split(s).documents for s in second.dataset.splits) == MAX_QUOTA_DOCUMENTS + 700
    )  # the 50 were known
    assert pipeline.output.getvalue().count("Training a wordpiece tokenizer") == 1
    assert pipeline.output.getvalue().count("trained before the new files were added") == 1
    reopened = pipeline.store(key=first.cache_key)
    assert reopened.cache_key == first.cache_key
    assert tokens(reopened.dataset) == tokens(first.dataset)
    assert pipeline.store().cache_key == second.cache_key


def test_interrupted_growth_resumes(pipeline: DatasetPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_file = tmp_path / "c.txt"
    new_file.write_text(lines(900, 3), encoding="utf-8")
    pipeline.store()
    new_file.rename(pipeline.folder / "c.txt")
    with monkeypatch.context() as patch:
        patch.setattr(
            "meristem.dataset.shard_writer.SplitWriter.close", lambda writer: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            pipeline.store()
    stopped = pipeline.store()
    (pipeline.folder / "c.txt").rename(new_file)
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "other"))
    pipeline.store()
    new_file.rename(pipeline.folder / "c.txt")
    straight = pipeline.store()
    assert stopped.cache_key == straight.cache_key
    first, second = (
        {path.relative_to(folder.dataset.folder): path.read_bytes() for path in folder.dataset.folder.rglob("*.*")}
        for folder in (stopped, straight)
    )
    assert first == second
    assert len(first) > 9


def test_a_changed_file_makes_another_dataset(pipeline: DatasetPipeline) -> None:
    first = pipeline.store()
    (pipeline.folder / "b.txt").write_text(lines(MAX_QUOTA_DOCUMENTS + 500, 5), encoding="utf-8")
    second = pipeline.store()
    assert second.cache_key.partition("@")[0] != first.cache_key.partition("@")[0]
    assert "changed or deleted since the corpus was processed" in pipeline.output.getvalue()
    assert tokens(pipeline.store(key=first.cache_key).dataset) == tokens(first.dataset)


def test_a_small_corpus_is_dealt_out_anew_when_it_grows(pipeline: DatasetPipeline) -> None:
    (pipeline.folder / "b.txt").write_text(lines(60, 1), encoding="utf-8")
    first = pipeline.store()
    assert first.dataset.split("validation").documents == 6
    (pipeline.folder / "c.txt").write_text(lines(40, 2), encoding="utf-8")
    second = pipeline.store()
    assert second.dataset.split("validation").documents == 10
    assert second.cache_key.partition("@")[0] != first.cache_key.partition("@")[0]
    assert tokens(pipeline.store(key=first.cache_key).dataset) == tokens(first.dataset)


def test_damaged_parts_do_not_disturb_finished_shards(pipeline: DatasetPipeline) -> None:
    first = pipeline.store()
    for path in cache_dir().glob("corpora/*/parts/*.jsonl"):
        path.unlink()
    assert pipeline.store().cache_key == first.cache_key
    assert "missing; processing again from there" in pipeline.output.getvalue()


@pytest.mark.parametrize("key", ["../../etc", "0" * 20 + "@../x", "0" * 20 + "@1-" + "0" * 8])
def test_a_strange_key_leads_nowhere(pipeline: DatasetPipeline, key: str) -> None:
    with pytest.raises(MeristemError, match="text has changed"):
        pipeline.store(key=key)


def test_a_run_may_name_a_state(tmp_path: Path) -> None:
    run, keys = RunFolder(tmp_path), {"main": "0" * 20 + "@2-" + "a" * 8}
    run.shards_path.write_text(json.dumps(keys), encoding="utf-8")
    assert run.shard_keys() == keys
