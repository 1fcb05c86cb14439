"""`describe --devices`: bytes sent per step, compared with the count of the kernel."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_processes import bytes_sent, run_processes
from rich.console import Console

from meristem.config.errors import RecipeError
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.describe.describe_recipe import describe_recipe
from meristem.training import budget, step
from meristem.training.pretraining import pretrain

STEPS = 6


def recipe_of(**train: Any) -> Recipe:
    train_settings = {
        "steps": STEPS,
        "batch_tokens": 192,
        "save_every": 1000,
        "evaluate_every": 1000,
        "threads": 1,
        **train,
    }
    model = {"family": "gpt2", "layers": 2, "hidden_size": 64, "heads": 2, "max_length": 32}
    corpus = {"source": "builtin:microworld-en?size=40", "processes": 1, "validation": 0, "test": 0}
    tokenizer = {"kind": "bpe", "vocab_size": 400}
    return resolve_recipe(
        "sent",
        {"model": model, "objective": ["clm"], "corpus": corpus, "tokenizer": tokenizer, "train": train_settings},
    )


SHARDED = {"fsdp": True, "optimizer": "muon"}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sockets are looked for in /proc")
@pytest.mark.parametrize(
    "sharing",
    [{}, *(pytest.param(train_variant, marks=pytest.mark.slow) for train_variant in ({"optimizer": "muon"}, SHARDED))],
    ids=str,
)
def test_the_estimate_is_what_processes_really_send(
    sharing: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    recipe = recipe_of(**sharing)
    estimate = {number: describe_recipe(recipe, vocab_size=400, devices=number).shared for number in (1, 2, 3)}
    torch.set_num_threads(1)
    for number in (1, 2, 3):
        num_bytes = estimate[number]
        assert num_bytes is not None
        moved = _moved(recipe, number, tmp_path)
        assert len(moved) == number
        # control words of a step are some hundred bytes; who tells Muon's matrices to whom differs by process
        assert statistics.mean(moved) == pytest.approx(num_bytes.sent, rel=0.1, abs=2000)


def _moved(recipe: Recipe, number: int, folder: Path) -> list[float]:
    """Bytes that each process sent in a step, the first one left out."""
    out = folder / f"{number}"

    def work(rank: int) -> None:
        counts: list[int] = []
        train_step = step.Stepper.train_step

        def counted(self: Any, *step_arguments: Any) -> Any:
            counts.append(bytes_sent())
            return train_step(self, *step_arguments)

        step.Stepper.train_step = counted  # type: ignore[method-assign]
        pretrain(recipe, out, fresh=False, console=Console(quiet=True))
        (folder / f"{number}-{rank}.json").write_text(json.dumps(counts))

    run_processes(number, work, folder / f"{number}.said")
    bytes_per_step = []
    for rank in range(number):
        counts = json.loads((folder / f"{number}-{rank}.json").read_text())[-STEPS:]
        bytes_per_step.append((counts[-1] - counts[1]) / (len(counts) - 2))
    return bytes_per_step


def test_a_part_is_smaller_than_a_copy_and_more_devices_than_rows_are_refused() -> None:
    copy, part = (describe_recipe(recipe_of(fsdp=shard), vocab_size=400, devices=3).shared for shard in (False, True))
    assert copy is not None
    assert part is not None
    assert part.held == pytest.approx(copy.held / 3, rel=0.01)
    assert part.memory < copy.memory
    with pytest.raises(RecipeError, match="a step has only 6 rows"):
        describe_recipe(recipe_of(), vocab_size=400, devices=7)
