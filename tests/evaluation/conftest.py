"""Small runs as training leaves them: a recipe, a tokenizer, a checkpoint, and shards in a cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from meristem.checkpoint import provenance
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.recipe import resolve_recipe
from meristem.dataset.prepare import prepare_dataset, prepare_tokenizer
from meristem.learning.build import build_learner

MakeRun = Callable[..., LoadedRun]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Sixty short documents in two languages."""
    file = tmp_path / "corpus.txt"
    english = [f"The gardener number {n} planted {n * 7} trees. The sailor went home. It rained." for n in range(30)]
    chinese = [f"第{n}个园丁种下了{n * 3}棵树。水手回家了。下了很多雨。" for n in range(30)]
    file.write_text("\n".join(english + chinese), encoding="utf-8")
    return file


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)


@pytest.fixture
def make_run(tmp_path: Path, corpus: Path, console: Console, monkeypatch: pytest.MonkeyPatch) -> MakeRun:
    """An untrained run of some objectives, opened again for use."""
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))

    def make(family: str, *objectives: str, **corpus_settings: object) -> LoadedRun:
        recipe = resolve_recipe(
            "tiny",
            {
                "corpus": {"source": str(corpus), "document": "line", "test": 0.2, **corpus_settings},
                "tokenizer": {"kind": "wordpiece", "vocab_size": 200},
                "objective": list(objectives),
                "model": {"family": family, "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 32},
                "train": {"steps": 1, "batch_tokens": 256},
            },
        )
        tokenizer = prepare_tokenizer(recipe.tokenizer, [recipe.corpus], console)
        shards = prepare_dataset(recipe.corpus, tokenizer, recipe.dataset, keep_words=False, console=console)
        path = tmp_path / f"run-{family}"
        path.mkdir()
        tokenizer.save(path / "words.json")
        text = yaml.safe_dump(recipe.to_dict())
        run = RunFolder.create(path, text, path / "words.json")
        (path / "data.json").write_text(json.dumps({"main": shards.cache_key}))
        provenance.sign_run(run, recipe)
        model = build_learner(recipe, tokenizer).model.state_dict()
        save_checkpoint(
            run.checkpoints,
            Snapshot(
                step=1, model=model, optimizer={}, memory={}, state={}, recipe=text, tokenizer=path / "words.json"
            ),
        )
        return load_run(path)

    return make
