"""Fixture that trains tiny pretraining runs in this process, each in about a second."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from meristem.config.recipe import Recipe, resolve_recipe
from meristem.training import budget
from meristem.training.loop import TrainingLoop
from meristem.training.pretraining import pretrain
from meristem.training.run_result import RunResult
from meristem.training.stop_signals import TrainingStopped

PARTS: dict[str, dict[str, Any]] = {
    "bert": {"tokenizer": {"kind": "wordpiece", "vocab_size": 300}, "objective": ["mlm", "nsp"]},
    "gpt2": {"tokenizer": {"kind": "bpe", "vocab_size": 300}, "objective": ["clm"]},
}


@dataclass
class RunFactory:
    """A folder in which runs are trained, and their console output."""

    root: Path
    output: io.StringIO = field(default_factory=io.StringIO)

    def recipe(self, family: str, *overrides: str) -> Recipe:
        """A tiny recipe of a family; settings given replace its own."""
        return resolve_recipe(
            "tiny",
            {
                **PARTS[family],
                "corpus": {"source": "builtin:microworld-en?size=40", "processes": 1, "validation": 0.1, "test": 0.1},
                "model": {"family": family, "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32},
                "train": {"steps": 6, "batch_tokens": 128, "log_every": 1, "threads": 1, "evaluate_tokens": 512},
            },
            overrides,
        )

    def train(self, *overrides: str, run: str = "run", family: str = "gpt2", fresh: bool = False) -> RunResult:
        """Train or resume a run."""
        console = Console(file=self.output, width=400)
        return pretrain(self.recipe(family, *overrides), self.root / run, fresh=fresh, console=console)

    def interrupt(self, *overrides: str, at: int, run: str = "run", family: str = "gpt2") -> None:
        """Train or resume a run until a signal stops it after a step."""
        record_step = TrainingLoop._record_step

        def stop_after(loop: TrainingLoop, result: Any, source_step: int) -> None:
            record_step(loop, result, source_step)
            if loop.state.step == at:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TrainingLoop, "_record_step", stop_after)
            with pytest.raises(TrainingStopped):
                self.train(*overrides, run=run, family=family)

    def assert_equal_runs(self, *runs: str) -> None:
        """All bits of the last checkpoints, and what was measured at every step, are the same."""
        first, *others = [(self.losses(run), self.lines("evaluation", run), self._last_files(run)) for run in runs]
        assert all(other == first for other in others)

    def _last_files(self, run: str) -> dict[str, bytes]:
        folder = self.root / run / "checkpoints" / f"step-{self.facts(run)['step']:08d}"
        return {name: (folder / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}

    def lines(self, kind: str, run: str = "run") -> list[dict[str, Any]]:
        """The lines of one kind in a run's metrics."""
        text = (self.root / run / "metrics.jsonl").read_text(encoding="utf-8")
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]

    def losses(self, run: str = "run") -> list[float]:
        """The training loss of every step."""
        return [line["loss"] for line in self.lines("train", run)]

    def facts(self, run: str = "run") -> dict[str, Any]:
        """Content of a run's finished.json."""
        return json.loads((self.root / run / "finished.json").read_bytes())  # type: ignore[no-any-return]

    def state(self, run: str = "run") -> dict[str, Any]:
        """The train state of the last checkpoint."""
        path = self.root / run / "checkpoints" / f"step-{self.facts(run)['step']:08d}" / "state.json"
        return json.loads(path.read_bytes())  # type: ignore[no-any-return]

    def steps(self, run: str = "run") -> list[int]:
        """Steps of the saved checkpoints."""
        return sorted(int(path.name.removeprefix("step-")) for path in (self.root / run / "checkpoints").glob("step-*"))


@pytest.fixture
def run_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFactory]:
    """One thread, so that runs can be compared bit for bit; the machine's peak is measured on a small product."""
    before = torch.get_num_threads()
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    monkeypatch.chdir(tmp_path)
    yield RunFactory(tmp_path)
    torch.set_num_threads(before)
