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
class Shop:
    """A folder of texts, a cache of its own, and what was said."""

    folder: Path
    said: io.StringIO = field(default_factory=io.StringIO)

    def store(self, *, key: str | None = None, shard_tokens: int = 4_000) -> PreparedDataset:
        corpus = CorpusSettings(source=str(self.folder), document="line", processes=1, near_dedup=True, validation=0.1)
        console = Console(file=self.said, width=500)
        return prepare_dataset(
            corpus,
            prepare_tokenizer(WORDS, [corpus], console),
            DatasetSettings(shard_tokens=shard_tokens),
            keep_words=False,
            console=console,
            cache_key=key,
        )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "b.txt").write_text(lines(MAX_QUOTA_DOCUMENTS + 400, 1), encoding="utf-8")
    return Shop(folder)


def tokens(store: TokenDataset, split: str = "train") -> list[int]:
    stream = store.split(split)
    return stream.tokens(0, len(stream)).tolist()


def test_new_files_add_shards_and_runs_keep_theirs(shop: Shop) -> None:
    first = shop.store()
    before = {path: path.read_bytes() for path in first.dataset.folder.rglob("*.tokens")}
    assert len(before) > 2
    assert "@1-" in first.cache_key
    (shop.folder / "a.txt").write_text(lines(300, 2) + "\n" + lines(50, 1), encoding="utf-8")
    second = shop.store()
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
    assert shop.said.getvalue().count("Training a wordpiece tokenizer") == 1
    assert shop.said.getvalue().count("trained before the new files were added") == 1
    again = shop.store(key=first.cache_key)
    assert again.cache_key == first.cache_key
    assert tokens(again.dataset) == tokens(first.dataset)
    assert shop.store().cache_key == second.cache_key


def test_interrupted_growth_resumes(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = tmp_path / "c.txt"
    more.write_text(lines(900, 3), encoding="utf-8")
    shop.store()
    more.rename(shop.folder / "c.txt")
    with monkeypatch.context() as patch:
        patch.setattr(
            "meristem.dataset.shard_writer.SplitWriter.close", lambda writer: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            shop.store()
    stopped = shop.store()
    (shop.folder / "c.txt").rename(more)
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "other"))
    shop.store()
    more.rename(shop.folder / "c.txt")
    straight = shop.store()
    assert stopped.cache_key == straight.cache_key
    first, second = (
        {path.relative_to(one.dataset.folder): path.read_bytes() for path in one.dataset.folder.rglob("*.*")}
        for one in (stopped, straight)
    )
    assert first == second
    assert len(first) > 9


def test_a_changed_file_makes_another_dataset(shop: Shop) -> None:
    first = shop.store()
    (shop.folder / "b.txt").write_text(lines(MAX_QUOTA_DOCUMENTS + 500, 5), encoding="utf-8")
    second = shop.store()
    assert second.cache_key.partition("@")[0] != first.cache_key.partition("@")[0]
    assert "changed or deleted since the corpus was processed" in shop.said.getvalue()
    assert tokens(shop.store(key=first.cache_key).dataset) == tokens(first.dataset)


def test_a_small_corpus_is_dealt_out_anew_when_it_grows(shop: Shop) -> None:
    (shop.folder / "b.txt").write_text(lines(60, 1), encoding="utf-8")
    first = shop.store()
    assert first.dataset.split("validation").documents == 6
    (shop.folder / "c.txt").write_text(lines(40, 2), encoding="utf-8")
    second = shop.store()
    assert second.dataset.split("validation").documents == 10
    assert second.cache_key.partition("@")[0] != first.cache_key.partition("@")[0]
    assert tokens(shop.store(key=first.cache_key).dataset) == tokens(first.dataset)


def test_damaged_parts_do_not_disturb_finished_shards(shop: Shop) -> None:
    first = shop.store()
    for path in cache_dir().glob("corpora/*/parts/*.jsonl"):
        path.unlink()
    assert shop.store().cache_key == first.cache_key
    assert "missing; processing again from there" in shop.said.getvalue()


@pytest.mark.parametrize("key", ["../../etc", "0" * 20 + "@../x", "0" * 20 + "@1-" + "0" * 8])
def test_a_strange_key_leads_nowhere(shop: Shop, key: str) -> None:
    with pytest.raises(MeristemError, match="text has changed"):
        shop.store(key=key)


def test_a_run_may_name_a_state(tmp_path: Path) -> None:
    run, keys = RunFolder(tmp_path), {"main": "0" * 20 + "@2-" + "a" * 8}
    run.shards_path.write_text(json.dumps(keys), encoding="utf-8")
    assert run.shard_keys() == keys
