"""Training in bfloat16 against float32: final validation losses of four objectives, three seeds each.

python -m benchmarks.precision_quality TEXT [--steps 150] [--only mlm,clm] [--seeds 3] [--control]

Every cell is an ordinary run with a JSON file in docs/results/precision; finished cells are not repeated. The table
goes to docs/results/precision.md. With --control every run is also trained in bfloat16 with each batch in two halves,
which is the same computation rounded differently: what two such runs differ by has nothing to do with precision.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, table
from meristem import api
from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.compare.statistics import compare_paired

RECIPES = {"mlm": "roberta-mini-prenorm", "clm": "gpt2-mini", "rtd": "electra-mini", "denoising": "bart-mini"}
CELLS = RESULTS / "precision"
PRECISIONS = ("float32", "bfloat16")
CONTROL = "bfloat16-halves"
BATCH_TOKENS = 2048


def measure(objective: str, precision: str, seed: int, text: Path, steps: int) -> dict[str, Any]:
    """Train one cell; returns its validation metrics and minutes."""
    settings = {
        "train.steps": steps,
        "train.seed": seed,
        "train.precision": precision.partition("-")[0],
        "train.evaluate_every": steps,
        "train.batch_tokens": BATCH_TOKENS,
        "train.micro_batch_tokens": BATCH_TOKENS // 2 if precision == CONTROL else None,
        "corpus.test": 0.0,
    }
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        result = api.pretrain(RECIPES[objective], settings, source=str(text), out=run, console=Console(quiet=True))
        finished = json.loads((run / "finished.json").read_text(encoding="utf-8"))
    used = finished.get("used", {})
    return {"features": bfloat16_features(), "metrics": dict(result.metrics), "used": used}


def cell_path(objective: str, precision: str, seed: int) -> Path:
    """Where the result of a cell is kept."""
    return CELLS / f"{objective}--{precision}--{seed}.json"


def loss_of(path: Path) -> float:
    """Validation loss of a finished cell."""
    return float(json.loads(path.read_text(encoding="utf-8"))["metrics"]["loss"])


def result_rows(seeds: int) -> list[list[str]]:
    """One row per objective with both precisions finished: means, spreads, and the paired differences."""
    rows = []
    for objective, recipe in RECIPES.items():
        pairs = [
            tuple(loss_of(cell_path(objective, precision, seed)) for precision in PRECISIONS)
            for seed in range(seeds)
            if all(cell_path(objective, precision, seed).is_file() for precision in PRECISIONS)
        ]
        if not pairs:
            continue
        float32_losses, bfloat16_losses = columns = tuple(zip(*pairs, strict=True))
        mean_cells = (f"{statistics.mean(losses):.4f} ({min(losses):.4f}–{max(losses):.4f})" for losses in columns)
        spread = max(float32_losses) - min(float32_losses)
        comparison = compare_paired(bfloat16_losses, float32_losses, lower_is_better=False)
        mean_difference = statistics.mean(bfloat16_losses) - statistics.mean(float32_losses)
        verdict = "–" if len(pairs) < 2 else "within" if abs(mean_difference) <= spread else "outside"
        interval = "–" if comparison.interval is None else "{:+.4f} to {:+.4f}".format(*comparison.interval)
        rows.append(
            [
                objective, recipe, str(len(pairs)), *mean_cells, f"{mean_difference:+.4f}", interval,
                f"{spread:.4f}", verdict,
            ]
        )  # fmt: skip
    return rows


def control_rows(seeds: int) -> list[list[str]]:
    """One row per objective with control runs: the paired differences of two roundings of the same computation."""
    rows = []
    for objective in RECIPES:
        pairs = [
            tuple(loss_of(cell_path(objective, precision, seed)) for precision in ("bfloat16", CONTROL))
            for seed in range(seeds)
            if cell_path(objective, CONTROL, seed).is_file()
        ]
        if len(pairs) < 2:
            continue
        differences = [control - whole for whole, control in pairs]
        shown = ", ".join(f"{difference:+.3f}" for difference in differences)
        rows.append([objective, str(len(pairs)), shown, f"{statistics.stdev(differences):.4f}"])
    return rows


def processors() -> str:
    """How many cells ran on which processor features."""
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(CELLS.glob("*.json"))]
    counts = Counter(", ".join(cell["features"]) or "none (bfloat16 products are emulated)" for cell in cells)
    return "; ".join(f"{features}: {count} cells" for features, count in counts.most_common())


def main() -> None:
    """Train what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(RECIPES))
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    CELLS.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        for objective in options.only.split(","):
            for precision in (*PRECISIONS, CONTROL) if options.control else PRECISIONS:
                path = cell_path(objective, precision, seed)
                if not path.is_file():
                    cell = measure(objective, precision, seed, options.text, options.steps)
                    path.write_text(json.dumps({"steps": options.steps, **cell}, indent=1) + "\n", encoding="utf-8")
                    print(objective, precision, seed, cell["metrics"]["loss"], flush=True)
    header = [
        "objective", "recipe", "seeds", "float32", "bfloat16", "mean difference", "95 % interval", "spread of float32",
        "verdict",
    ]  # fmt: skip
    lines = [
        "# Training in bfloat16 and in float32",
        "",
        f"`python -m benchmarks.precision_quality TEXT --steps {options.steps}` on "
        f"{options.text.parent.name}, {options.text.name}: validation",
        "loss, evaluated in float32, after the same steps on the same samples; mean (lowest–highest) over seeds. The",
        "verdict compares the mean paired difference with the spread of float32's seeds; the interval is Student's",
        f"over paired seeds. bfloat16 features of the processors: {processors()}; torch {torch.__version__}.",
        "",
        table(header, result_rows(options.seeds)),
        "",
    ]
    if rows := control_rows(options.seeds):
        lines += [
            "Two roundings of the same bfloat16 computation (`--control`: each batch at once, and in two halves):",
            "",
            table(["objective", "seeds", "differences", "deviation"], rows),
            "",
        ]
    (RESULTS / "precision.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
