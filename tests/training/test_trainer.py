"""A run resumes with the number of threads and the batches it started with, or says that it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from meristem import api
from meristem.checkpoint import disk, manifest
from meristem.config.errors import MeristemError
from meristem.training import budget

SMALL = ["model.layers=1", "model.hidden_size=16", "model.heads=2", "model.max_length=16", "tokenizer.vocab_size=300",
         "corpus.limit=60", "train.batch_tokens=64", "train.evaluate_tokens=64", "train.evaluate_every=2",
         "objective=mlm"]  # fmt: skip


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def pretrain(out: Path, *overrides: str) -> str:
    api.pretrain(
        "bert-mini", [*SMALL, *overrides], source="builtin:microworld-en", out=out, console=Console(quiet=True)
    )
    return (out / "log.txt").read_text()


def test_another_number_of_threads_is_pinned_or_said(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    pretrain(tmp_path / "run", "train.steps=2")
    torch.set_num_threads(2)
    output = pretrain(tmp_path / "run", "train.steps=4")
    assert "Resuming with 1 threads, as the run started (this machine would use 2)" in output
    assert torch.get_num_threads() == 1
    output = pretrain(tmp_path / "run", "train.steps=6", "train.threads=2")
    assert "train.threads=2, but the run started with 1: metrics will differ in the last digits" in output
    assert torch.get_num_threads() == 2


def test_a_run_whose_batches_would_change_is_refused(tmp_path: Path) -> None:
    pretrain(tmp_path / "run", "train.steps=2")
    folder = tmp_path / "run" / "checkpoints" / "step-00000002"
    state = json.loads((folder / "state.json").read_bytes())
    assert state["samples"] == 2 * 4
    (folder / "state.json").write_text(json.dumps({**state, "samples": 2 * 5}))  # as another version counted
    content = manifest.read_manifest(folder)
    files = {name: disk.digest(folder / name) for name in content.files}
    (folder / "manifest.json").write_bytes(replace(content, files=files).to_bytes())
    with pytest.raises(MeristemError, match=r"has read 10 samples in 2 steps, and would have read 8 now"):
        pretrain(tmp_path / "run", "train.steps=4")
