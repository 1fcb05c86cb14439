"""Muon's Newton–Schulz products in bfloat16 against float32: time of an update, and loss after the same steps.

    python -m benchmarks.muon_precision TEXT [--steps 150] [--seeds 3] [--recipes bert-mini-prenorm gpt2-mini]

TEXT is a file, such as wikitext-2/test.txt. Both sides train in bfloat16 on the same samples with one thread; only the
products of Muon's update differ. One file per cell in docs/results/muon-precision; finished cells are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from scipy import stats
from torch import Tensor

from benchmarks.side_by_side import RESULTS, table
from meristem import api
from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.training.optim import muon

CELLS, PAGE = RESULTS / "muon-precision", RESULTS / "muon-precision.md"
SIDES = ("float32", "bfloat16")
orthogonalize = muon.orthogonalize


def orthogonalize_in_float32(m_ARC: Tensor, steps: int = muon.NEWTON_SCHULZ_STEPS) -> Tensor:
    """The update with float32 products, whatever the precision of the run."""
    with torch.autocast("cpu", enabled=False):
        return orthogonalize(m_ARC, steps)


def train(recipe: str, text: Path, side: str, seed: int, steps: int) -> dict[str, Any]:
    """One cell: validation loss after so many steps, and seconds of optimizer and run."""
    seconds: list[float] = []
    update = muon.Muon.step

    def timed(optimizer: muon.Muon, closure: Any = None) -> None:
        start = time.perf_counter()
        update(optimizer)
        seconds.append(time.perf_counter() - start)

    overrides = {
        "objective": "clm" if recipe.startswith("gpt2") else "mlm", "train.minutes": None, "train.steps": steps,
        "train.seed": seed, "train.threads": 1, "train.precision": "bfloat16", "train.evaluate_every": "none",
        "train.trackers": [],
    }  # fmt: skip
    chosen = orthogonalize_in_float32 if side == "float32" else orthogonalize
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(muon.Muon, "step", timed),
        mock.patch.object(muon, "orthogonalize", chosen),
    ):
        result = api.pretrain(recipe, overrides, source=text, out=Path(folder) / "run", console=Console(quiet=True))
    return {
        "recipe": recipe, "side": side, "seed": seed, "steps": steps, "loss": result.test["loss"],
        "seconds_of_update": statistics.median(seconds), "seconds": time.perf_counter() - start,
        "text": f"{text.parent.name}/{text.name}", "bfloat16": bfloat16_features(), "torch": torch.__version__,
    }  # fmt: skip


def with_range(values: list[float]) -> str:
    """Mean (lowest–highest)."""
    return f"{statistics.mean(values):.4f} ({min(values):.4f}–{max(values):.4f})"


def write_page() -> None:
    """The page of all cells."""
    cells = [json.loads(path.read_text()) for path in sorted(CELLS.glob("*.json"))]
    rows = []
    for recipe in dict.fromkeys(cell["recipe"] for cell in cells):
        sides = {side: {c["seed"]: c for c in cells if c["recipe"] == recipe and c["side"] == side} for side in SIDES}
        seeds = sorted(sides["float32"].keys() & sides["bfloat16"].keys())
        if len(seeds) < 2:
            continue
        losses = {side: [sides[side][seed]["loss"] for seed in seeds] for side in SIDES}
        test = stats.ttest_rel(losses["bfloat16"], losses["float32"])
        low, high = test.confidence_interval(0.95)
        updates = {side: statistics.median(sides[side][seed]["seconds_of_update"] for seed in seeds) for side in SIDES}
        difference = statistics.mean(losses["bfloat16"]) - statistics.mean(losses["float32"])
        rows.append([
            recipe, str(len(seeds)), str(cells[0]["steps"]), *(with_range(losses[side]) for side in SIDES),
            f"{difference:+.4f} ({low:+.4f} to {high:+.4f})", *(f"{1000 * updates[side]:.0f}" for side in SIDES),
        ])  # fmt: skip
    header = ["recipe", "seeds", "steps", "test loss, float32", "test loss, bfloat16", "difference (95 % interval)",
              "ms of an update, float32", "ms, bfloat16"]  # fmt: skip
    PAGE.write_text(
        f"# Precision of Muon's update\n\n`python -m benchmarks.muon_precision TEXT` on {cells[0]['text']}: training "
        "in bfloat16 with Muon's\nNewton–Schulz products in float32 and in bfloat16; one thread, the same samples and "
        f"steps, paired by seed. {', '.join(cells[0]['bfloat16'])}; torch {cells[0]['torch']}.\n\n"
        f"{table(header, rows)}\n"
    )
    print(PAGE.read_text())


def main() -> None:
    """Run the missing cells, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", default=["bert-mini-prenorm", "gpt2-mini"])
    options = parser.parse_args()
    CELLS.mkdir(parents=True, exist_ok=True)
    for recipe in options.recipes:
        for seed in range(options.seeds):
            for side in SIDES:
                file = CELLS / f"{recipe}--{side}--{seed}.json"
                if not file.is_file():
                    cell = train(recipe, options.text, side, seed, options.steps)
                    file.write_text(json.dumps(cell, indent=1) + "\n")
                    print(file.stem, round(cell["loss"], 4), round(cell["seconds_of_update"], 3), flush=True)
    write_page()


if __name__ == "__main__":
    main()
