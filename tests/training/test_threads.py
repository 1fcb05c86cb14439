"""A run resumes with the number of threads it began with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from meristem import api
from meristem.training import budget

SMALL = ["model.layers=1", "model.width=16", "model.heads=2", "model.length=16", "tokenizer.size=300",
         "corpus.limit=60", "train.batch_tokens=64", "train.evaluate_tokens=64", "train.evaluate_every=2",
         "objective=mlm"]  # fmt: skip


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def pretrain(out: Path, *more: str) -> str:
    api.pretrain("bert-mini", [*SMALL, *more], source="builtin:microworld-en", out=out, console=Console(quiet=True))
    return (out / "log.txt").read_text()


def test_another_number_of_threads_is_pinned_or_said(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    pretrain(tmp_path / "run", "train.steps=2")
    torch.set_num_threads(2)
    said = pretrain(tmp_path / "run", "train.steps=4")
    assert "Resuming with 1 threads, as the run began (this machine would use 2)" in said
    assert torch.get_num_threads() == 1
    said = pretrain(tmp_path / "run", "train.steps=6", "train.threads=2")
    assert "train.threads=2, and the run began with 1: its numbers will differ in the last digits" in said
    assert torch.get_num_threads() == 2
