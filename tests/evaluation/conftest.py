"""Small runs as training leaves them: a recipe, a tokenizer, a checkpoint, and shards in a cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from meristem.checkpoint import origin
from meristem.checkpoint.revive import Revived, revive
from meristem.checkpoint.run import Run
from meristem.checkpoint.save import save
from meristem.checkpoint.snapshot import Snapshot
from meristem.learning.assemble import learner_of
from meristem.recipe import resolve
from meristem.store.prepare import store_for, tokenizer_for

MakeRun = Callable[..., Revived]


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

    def made(family: str, *objectives: str, **corpus_settings: object) -> Revived:
        recipe = resolve("tiny", {
            "corpus": {"source": str(corpus), "document": "line", "test": 0.2, **corpus_settings},
            "tokenizer": {"kind": "wordpiece", "size": 200}, "objective": list(objectives),
            "model": {"family": family, "layers": 1, "width": 16, "heads": 2, "length": 32},
            "train": {"steps": 1, "batch_tokens": 256}})
        tokenizer = tokenizer_for(recipe.tokenizer, [recipe.corpus], console)
        shards = store_for(recipe.corpus, tokenizer, recipe.store, words=False, console=console)
        path = tmp_path / f"run-{family}"
        path.mkdir()
        tokenizer.save(path / "words.json")
        text = yaml.safe_dump(recipe.plain())
        run = Run.create(path, text, path / "words.json")
        (path / "data.json").write_text(json.dumps({"main": shards.key}))
        origin.sign(run, recipe)
        model = learner_of(recipe, tokenizer).model.state_dict()
        save(run.checkpoints, Snapshot(step=1, model=model, optimizer={}, memory={}, state={}, recipe=text,
                                       tokenizer=path / "words.json"))
        return revive(path)

    return made
