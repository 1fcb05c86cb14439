"""A run whose head counts n-grams: its mixture is saved, predicts after loading, and is reported."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from rich.console import Console

from meristem import api

SETTINGS = {
    "data.train": "builtin:microworld-sentiment?size=200&seed=1",
    "data.validation": "builtin:microworld-sentiment?size=80&seed=2",
    "data.test": "builtin:microworld-sentiment?size=80&seed=3",
    "tokenizer.vocab_size": 600,
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 48,
    "task.ngram_buckets": 4096,
    "train.epochs": 4,
    "train.evaluate_every": "2epoch",
}


def test_the_mixture_of_the_best_checkpoint_predicts_after_loading(tmp_path: Path) -> None:
    result = api.finetune("classification", SETTINGS, out=tmp_path / "run", console=Console(quiet=True))
    loaded = api.load(tmp_path / "run")
    mixture = {name: value for name, value in loaded.model.named_buffers() if name.endswith("log_mixture")}
    assert list(mixture) == ["heads.ngrams.log_mixture"]
    assert not torch.equal(mixture["heads.ngrams.log_mixture"], torch.full((2,), 0.5).log())
    evaluation = loaded.evaluate(data=SETTINGS["data.test"])
    assert evaluation["metrics"]["accuracy"] == result.test["accuracy"]
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert "linear n-grams" in report["baselines"]
