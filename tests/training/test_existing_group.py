"""Training inside a process group that exists already, as in Ray Train: it is used, and nothing is started or ended."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forked_processes import run_processes
from rich.console import Console

from meristem.config.recipe import Recipe, resolve_recipe
from meristem.training.pretraining import pretrain

pytestmark = pytest.mark.usefixtures("one_thread")


def small_recipe() -> Recipe:
    return resolve_recipe("small", {
        "model": {"family": "gpt2", "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 16, "dropout": 0.0},
        "objective": "clm", "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "corpus": {"source": "builtin:microworld-en?size=40", "processes": 1},
        "train": {"steps": 3, "batch_tokens": 7 * 16, "evaluate_tokens": 64, "log_every": 1,
                  "evaluate_every": "none", "threads": 1, "precision": "float32", "trackers": []},
    })  # fmt: skip


def train(out: Path) -> None:
    pretrain(small_recipe(), out, fresh=False, console=Console(quiet=True))


def losses(out: Path) -> list[float]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


def test_a_group_that_exists_is_used_and_left_as_it_is(tmp_path: Path) -> None:
    train(tmp_path / "ready")  # shards are made, and whatever is imported late, before processes are forked

    def inside_group(rank: int) -> None:
        dist.init_process_group("gloo")
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # nothing but the group says so
            del os.environ[name]
        group = dist.distributed_c10d._get_default_group()
        train(tmp_path / "inside")
        assert dist.distributed_c10d._get_default_group() is group
        total = torch.tensor([1.0 + rank])
        dist.all_reduce(total)
        assert total.item() == 3.0
        dist.destroy_process_group()

    run_processes(2, inside_group, tmp_path / "inside.said")
    assert len(losses(tmp_path / "ready")) == 3
    assert losses(tmp_path / "inside") == pytest.approx(losses(tmp_path / "ready"), rel=1e-5)
