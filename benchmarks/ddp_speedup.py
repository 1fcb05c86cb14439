"""Speed-up of data parallelism (DDP or FSDP2): tokens per second of one and two processes with the same recipe.

    python -m benchmarks.ddp_speedup [--repeats 5] [--steps 24]

One process with one thread, two with one thread each, and one with two threads, alternated; medians of ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.side_by_side import table

CONFIGURATIONS = {"1 × 1 thread": (1, 1), "2 × 1 thread": (2, 1), "1 × 2 threads": (1, 2)}
RECIPE = [
    "pretrain", "bert-mini-prenorm", "builtin:microworld-en?size=3000", "objective=mlm", "train.log_every=1",
    "train.evaluate_every=100000", "train.save_every=100000", "corpus.validation=0", "corpus.test=0",
]  # fmt: skip
WARM = 4
"""Warm-up steps that are not measured."""


def speed(processes: int, threads: int, steps: int, shard: bool) -> float:
    """Tokens per second of the median step."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*RECIPE, f"train.steps={steps}", f"train.threads={threads}", "--out", f"{folder}/run"]
        if processes > 1:
            words += ["--processes", str(processes), *(["train.fsdp=true"] if shard else [])]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run([sys.executable, "-m", "meristem", *words], check=True, env=env, stderr=subprocess.DEVNULL)
        lines = (json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines())
        speeds = [line["tokens_per_second"] for line in lines if line["kind"] == "train"]
    return statistics.median(speeds[WARM:])


def main() -> None:
    """Measure, alternated, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--shard", action="store_true", help="FSDP2 in place of DDP")
    options = parser.parse_args()
    speeds_by_name: dict[str, list[float]] = {name: [] for name in CONFIGURATIONS}
    for number in range(options.repeats):
        for name, (processes, threads) in CONFIGURATIONS.items():
            speeds_by_name[name].append(speed(processes, threads, options.steps, options.shard))
        print(number, {name: round(values[-1]) for name, values in speeds_by_name.items()}, flush=True)
    two_process_speeds = speeds_by_name["2 × 1 thread"]
    rows = [
        [
            name,
            f"{statistics.median(values):,.0f}",
            _ratio(two_process_speeds, values) if values is not two_process_speeds else "–",
        ]
        for name, values in speeds_by_name.items()
    ]
    print(table(["processes", "tokens a second", "2 × 1 thread against it"], rows))


def _ratio(ours: list[float], other: list[float]) -> str:
    ratios = sorted(a / b for a, b in zip(ours, other, strict=True))
    return f"{statistics.median(ratios):.2f}× ({ratios[0]:.2f}–{ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
