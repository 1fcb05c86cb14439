"""Fixture that fine-tunes tiny models in this process, each in a second or two."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.training import budget
from meristem.training.run_result import RunResult

SMALL = {
    "model.layers": 2,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 24,
    "tokenizer.vocab_size": 300,
}
QUICK = {
    "train.steps": 6,
    "train.batch_samples": 8,
    "train.learning_rate": 3e-3,
    "train.schedule": "constant",
    "train.warmup": 0,
    "train.log_every": 1,
    "train.threads": 1,
    "train.evaluate_every": 3,
}
GOOD, BAD = ("lovely", "bright", "warm", "kind"), ("awful", "cold", "grim", "rude")
THINGS = ("boat", "garden", "letter", "harbour", "film", "painter", "winter")


def sentences(number: int, first: int = 0) -> list[tuple[str, str]]:
    """Sentences whose one adjective says their label; no two are the same."""
    labelled_sentences = []
    for index in range(first, first + number):
        words, label = ((GOOD, "good"), (BAD, "bad"))[index % 2]
        labelled_sentences.append((f"the {THINGS[index % 7]} of day {index} was {words[index // 2 % 4]}", label))
    return labelled_sentences


@dataclass
class FinetuneFactory:
    """A folder in which tasks are fine-tuned, and their console output."""

    root: Path
    output: io.StringIO = field(default_factory=io.StringIO)

    def file(self, name: str, rows: list[tuple[str, str]]) -> Path:
        """A labelled file."""
        path = self.root / name
        path.write_text("".join(f"{a}\t{b}\n" for a, b in [("sentence", "label"), *rows]), encoding="utf-8")
        return path

    def learn(self, overrides: dict[str, Any] | None = None, *, run: str = "run", fresh: bool = False) -> RunResult:
        """Train or resume a sentiment task, with a small model unless it starts from a run."""
        overrides = overrides or {}
        for name, number, first in (("train", 32, 0), ("validation", 8, 32), ("test", 8, 40)):
            if not (self.root / f"{name}.tsv").exists():
                self.file(f"{name}.tsv", sentences(number, first))
        files = {f"data.{name}": f"{name}.tsv" for name in ("train", "validation", "test")}
        size = {} if overrides.get("from") or overrides.get("from.path") else SMALL
        console = Console(file=self.output, width=300)
        merged = {**files, **size, **QUICK, **overrides}
        return api.finetune("classification", merged, out=self.root / run, fresh=fresh, console=console)

    def weights(self, run: str = "run", step: int | None = None) -> dict[str, torch.Tensor]:
        """The tensors of a checkpoint."""
        loaded = load_checkpoint(self.root / run / "checkpoints", step=step)
        assert loaded is not None
        return loaded.snapshot.model

    def remembered(self, run: str = "run") -> set[str]:
        """Names of the parameters with optimizer state."""
        loaded = load_checkpoint(self.root / run / "checkpoints")
        assert loaded is not None
        return {name.rpartition("/")[0] for name in loaded.snapshot.optimizer}

    def losses(self, run: str = "run") -> list[float]:
        """The training loss of every step."""
        lines = (self.root / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [line["loss"] for line in map(json.loads, lines) if line["kind"] == "train"]


@pytest.fixture
def finetune_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FinetuneFactory]:
    """One thread, so that runs can be compared bit for bit; the machine's peak is measured on a small product."""
    before = torch.get_num_threads()
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    monkeypatch.chdir(tmp_path)
    yield FinetuneFactory(tmp_path)
    torch.set_num_threads(before)
