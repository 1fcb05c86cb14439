"""Distributed training with one, two and three processes (DDP and FSDP2): same samples, losses and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_processes import run_processes
from rich.console import Console

from meristem.checkpoint import load
from meristem.config.errors import RecipeError
from meristem.config.recipe import FinetuneRecipe, Recipe, resolve_recipe
from meristem.dataset.feed import Feed
from meristem.distributed.process_group import DistributedContext
from meristem.finetune.finetuning import finetune
from meristem.training.pretraining import pretrain

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"layers": 2, "hidden_size": 32, "heads": 2, "max_length": 16, "dropout": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {"model": {"family": "bert", **SMALL}, "objective": ["mlm", "nsp"], "train": {"optimizer": "muon"}},
    "gpt2": {"model": {"family": "gpt2", **SMALL}, "objective": ["clm"], "train": {"micro_batch_tokens": 48}},
    "memory": {"model": {"family": "transformer_xl", **SMALL, "memory_length": 16}, "objective": ["clm"]},
    "replaced": {"model": {"family": "electra", **SMALL}, "objective": ["rtd"]},
    "mixed": {"model": {"family": "modern", **SMALL, "ffn_size": 64},
              "mix": [{"weight": 2, "objective": "clm"}, {"weight": 1, "objective": "mlm"}]},
}  # fmt: skip
OTHERS = ("gpt2", "replaced", "mixed")
MORE = ("memory", *OTHERS)
ROWS = 7  # shared by two or three, somebody has more than the others


def recipe_of(kind: str, steps: int = 20, **train: Any) -> Recipe:
    plain = KINDS[kind]
    corpus = {"source": "builtin:microworld-en?size=40", "processes": 1, "validation": 0.1, "test": 0.1}
    train_settings = {
        "steps": steps,
        "batch_tokens": ROWS * 16,
        "log_every": 1,
        "evaluate_every": 10,
        "threads": 1,
        "evaluate_tokens": 256,
        "save_every": 1000,
        "schedule": "constant",
        "warmup": 0,
        "learning_rate": 2e-3,
    }
    train_settings.update(plain.get("train", {}), **train)
    return resolve_recipe(
        kind, {"tokenizer": {"kind": "bpe", "vocab_size": 300}, **plain, "corpus": corpus, "train": train_settings}
    )


@pytest.fixture(scope="module", autouse=True)
def _ready(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Shards are made, and whatever is imported late, before processes are forked."""
    pretrain(recipe_of("bert", 1), tmp_path_factory.mktemp("ready") / "run", fresh=False, console=Console(quiet=True))


def run(recipe: Recipe, out: Path, processes: int = 1, *, double: bool = False) -> None:
    """Train, or go on, with so many processes."""

    def work(rank: int) -> None:
        if double:
            torch.set_default_dtype(torch.float64)
        learn = finetune if isinstance(recipe, FinetuneRecipe) else pretrain
        learn(recipe, out, fresh=False, console=Console(quiet=True))

    run_processes(processes, work, out.with_name(f"{out.name}.said"))


def lines(out: Path, kind: str = "train") -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in records if line["kind"] == kind]


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in lines(out)]


def weights(out: Path) -> dict[str, torch.Tensor]:
    loaded = load.load_checkpoint(out / "checkpoints")
    assert loaded is not None
    return loaded.snapshot.model


# ------------------------------------------------------------ who reads what


class Numbers:
    """A view of numbers."""

    shuffled = True

    def __len__(self) -> int:
        return 23


def feed(rank: int, size: int, rows: int, micro: int) -> Feed:
    view: Any = Numbers()
    objective: Any = None
    return Feed(
        view=view,
        objective=objective,
        seed=3,
        batch_size=rows,
        micro_batch_size=micro,
        pad_values={},
        distributed=DistributedContext(rank=rank, world_size=size),
    )


def samples_of_processes(size: int, rows: int, micro: int, uses: range) -> list[tuple[int, int]]:
    """(epoch, sample) of every row, in the order of processes within a step."""
    samples_read = []
    for use in uses:
        for rank in range(size):
            process_feed = feed(rank, size, rows, micro)
            for number in range(process_feed.micro_steps):
                lanes = process_feed.row_range(number)
                assert len(lanes) > 0
                samples_read += list(
                    process_feed._epoch_indices(use * rows + lanes.start, len(lanes), len(process_feed.view))
                )
    return samples_read


@pytest.mark.parametrize("micro", [1, 2, 3, 100])
@pytest.mark.parametrize("rows", [3, 4, 7, 10])
def test_processes_share_every_step_in_order_and_each_sample_comes_once_an_epoch(rows: int, micro: int) -> None:
    single_process = samples_of_processes(1, rows, micro, range(23))
    assert [sample for epoch, sample in single_process if epoch == 1] != [
        sample for epoch, sample in single_process if epoch == 0
    ]
    for epoch in range(rows):  # 23 steps of so many rows are so many epochs of 23
        assert sorted(sample for epoch_number, sample in single_process if epoch_number == epoch) == list(range(23))
    assert samples_of_processes(2, rows, micro, range(23)) == single_process
    assert samples_of_processes(3, rows, micro, range(23)) == single_process
    changing = [
        *samples_of_processes(2, rows, micro, range(8)),
        *samples_of_processes(1, rows, micro, range(8, 11)),
        *samples_of_processes(3, rows, micro, range(11, 23)),
    ]
    assert changing == single_process


def test_every_process_has_as_many_micro_batches() -> None:
    for rows, micro, size in ((10, 1, 3), (10, 3, 3), (7, 2, 2), (9, 100, 4)):
        assert len({feed(rank, size, rows, micro).micro_steps for rank in range(size)}) == 1


def test_more_processes_than_rows_are_refused() -> None:
    with pytest.raises(
        RecipeError, match=r"3 rows cannot be split among 4 processes; use a larger train\.batch_tokens"
    ):
        feed(0, 4, 3, 1)


# ------------------------------------------------------------ the same losses


@pytest.mark.parametrize("kind", ["bert", "memory", *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def test_two_and_three_processes_have_the_losses_of_one(kind: str, tmp_path: Path) -> None:
    for size in (1, 2, 3):
        run(recipe_of(kind), tmp_path / str(size), size)
    single_losses = losses(tmp_path / "1")
    for size in (2, 3):
        process_losses = losses(tmp_path / str(size))
        assert process_losses[0] == pytest.approx(single_losses[0], rel=1e-6)
        assert process_losses == pytest.approx(single_losses, rel=1e-4)
        for before, after in zip(lines(tmp_path / "1"), lines(tmp_path / str(size)), strict=True):
            assert before["tokens"] == after["tokens"]
        for split in ("evaluation", "test"):
            (*_, single_record), (*_, shared) = lines(tmp_path / "1", split), lines(tmp_path / str(size), split)
            assert shared.pop("kind") == single_record.pop("kind")
            assert shared == pytest.approx(single_record, rel=1e-3)


@pytest.mark.parametrize("kind", ["bert", pytest.param("memory", marks=pytest.mark.slow)])
def test_in_double_precision_they_are_one(kind: str, tmp_path: Path) -> None:
    for size in (1, 2, 3):
        run(recipe_of(kind), tmp_path / str(size), size, double=True)
    single_weights = weights(tmp_path / "1")
    for size in (2, 3):
        assert losses(tmp_path / str(size)) == pytest.approx(losses(tmp_path / "1"), rel=1e-9)
        for name, value in weights(tmp_path / str(size)).items():
            torch.testing.assert_close(value, single_weights[name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("kind", ["bert", *(pytest.param(kind, marks=pytest.mark.slow) for kind in MORE)])
def test_sharded_weights_train_the_same(kind: str, tmp_path: Path) -> None:
    run(recipe_of(kind), tmp_path / "1")
    run(recipe_of(kind, fsdp=True), tmp_path / "2", 2)
    assert losses(tmp_path / "2") == pytest.approx(losses(tmp_path / "1"), rel=1e-4)
    full_weights, parts = weights(tmp_path / "1"), weights(tmp_path / "2")
    assert {name: value.shape for name, value in parts.items()} == {name: v.shape for name, v in full_weights.items()}
    assert sorted(path.name for path in (tmp_path / "2" / "checkpoints" / "step-00000020").iterdir()) == sorted(
        path.name for path in (tmp_path / "1" / "checkpoints" / "step-00000020").iterdir()
    )


# ------------------------------------------------------------ stopped, and gone on with by others


@pytest.mark.parametrize("kind", ["bert", pytest.param("memory", marks=pytest.mark.slow)])
def test_two_then_one_then_three_processes_with_sharding(kind: str, tmp_path: Path) -> None:
    run(recipe_of(kind, 18), tmp_path / "whole", double=True)
    out = tmp_path / "parts"
    for size, steps, shard in ((2, 6, False), (1, 12, False), (3, 18, True)):
        run(recipe_of(kind, steps, fsdp=shard), out, size, double=True)
    assert losses(out) == pytest.approx(losses(tmp_path / "whole"), rel=1e-9)
    for name, value in weights(out).items():
        torch.testing.assert_close(value, weights(tmp_path / "whole")[name], rtol=1e-9, atol=1e-9, msg=name)


def test_a_resumed_distributed_run_is_bit_identical(tmp_path: Path) -> None:
    run(recipe_of("memory", 12, ema_decay=0.9), tmp_path / "whole", 2)
    for steps in (5, 12):
        run(recipe_of("memory", steps, ema_decay=0.9), tmp_path / "parts", 2)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    for name, value in weights(tmp_path / "parts").items():
        assert torch.equal(value, weights(tmp_path / "whole")[name]), name


@pytest.mark.parametrize(("shard", "start"), [(False, {}), (True, {}), (False, {"unfreeze_every": 3})], ids=str)
def test_a_task_learns_with_two(shard: bool, start: dict[str, Any], tmp_path: Path) -> None:
    data = {split: f"builtin:microworld-sentiment?size={size}&seed={seed}"
            for seed, (split, size) in enumerate((("train", 60), ("validation", 20), ("test", 20)))}  # fmt: skip
    plain: dict[str, Any] = {
        "from": start,
        "task": {"name": "classification", "dropout": 0.0},
        "data": data,
        "model": {"family": "bert", **SMALL, "max_length": 64},
        "tokenizer": {"kind": "wordpiece", "vocab_size": 400},
        "train": {"steps": 10, "batch_samples": 7, "log_every": 1, "evaluate_every": 5, "threads": 1},
    }
    for size in (1, 2):
        plain["train"]["fsdp"] = shard and size == 2
        run(resolve_recipe("task", plain), tmp_path / str(size), size)
    assert losses(tmp_path / "2") == pytest.approx(losses(tmp_path / "1"), rel=1e-4)
    reports = [json.loads((tmp_path / size / "report.json").read_text(encoding="utf-8")) for size in "12"]
    assert reports[0]["metrics"] == pytest.approx(reports[1]["metrics"], rel=1e-3)
