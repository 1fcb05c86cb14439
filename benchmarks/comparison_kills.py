"""A comparison that is killed with SIGKILL again and again beside one that is not: the results must be the same bytes.

python -m benchmarks.comparison_kills [--arms 4] [--seeds 3] [--kills 10] [--parallel 2]

Tiny models, a labelled task and minimal pairs. A page goes to docs/results/comparison-kills.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.side_by_side import RESULTS, table

SETTINGS = {
    "model.layers": 1, "model.hidden_size": 32, "model.heads": 2, "model.max_length": 32, "tokenizer.vocab_size": 300,
    "train.batch_tokens": 512, "train.precision": "float32", "train.save_every": 2,
}  # fmt: skip
TASK = {
    "name": "sentiment", "task": "classification", "labels": [32], "all_labels": False,
    "data": {split: f"builtin:microworld-sentiment?size=60&seed={seed}" for split, seed in (("train", 1), ("test", 3))},
    "settings": {"train.steps": 6, "train.batch_samples": 8, "train.save_every": 2},
}  # fmt: skip
FILES = ("report.json", "report.csv")
"""Files whose bytes are compared; the costs in report.json, which hold minutes, are left out."""


def write_comparison(folder: Path, arms: int, seeds: int) -> Path:
    """The file of a comparison of arms that differ in their dropout, with minimal pairs beside it."""
    pairs = [{"sentence_good": f"The cat {n}.", "sentence_bad": f"Cat the {n}."} for n in range(20)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    comparison = {
        "arms": {f"dropout {n}": {"recipe": "gpt2-mini", "settings": {"model.dropout": n / 10}} for n in range(arms)},
        "source": "builtin:microworld-en?size=60", "budget": {"steps": 12}, "seeds": seeds, "settings": SETTINGS,
        "tasks": [TASK], "pairs": [str(folder / "pairs.jsonl")],
    }  # fmt: skip
    file = folder / "comparison.yaml"
    file.write_text(yaml.safe_dump(comparison), encoding="utf-8")
    return file


def start(file: Path, out: Path, parallel: int) -> subprocess.Popen[bytes]:
    """`meristem compare` in a session of its own."""
    command = [sys.executable, "-m", "meristem", "compare", str(file), "--out", str(out), "--parallel", str(parallel)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def finish(file: Path, out: Path, parallel: int) -> float:
    """Run to the end; returns seconds."""
    begun = time.monotonic()
    process = start(file, out, parallel)
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors.decode())
    return time.monotonic() - begun


def comparable(out: Path, name: str) -> bytes:
    """A file of the report without what depends on the clock."""
    content = (out / name).read_bytes()
    if name != "report.json":
        return content
    report = json.loads(content)
    del report["costs"]
    return json.dumps(report, sort_keys=True).encode()


def count_finished(out: Path) -> int:
    """Cells that have finished."""
    return len(list(out.glob("cells/*/finished.json")))


def kill_and_resume(
    file: Path, out: Path, *, kills: int, cells: int, parallel: int, patience: float
) -> list[list[str]]:
    """Start and kill a comparison; one row per kill with the cells that had finished."""
    rng, rows = random.Random(0), []
    for number in range(kills):
        goal = count_finished(out) + rng.randint(0, 2 * cells // kills)
        process, begun = start(file, out, parallel), time.monotonic()
        while process.poll() is None and count_finished(out) < min(goal, cells - 1):
            if time.monotonic() > begun + patience:
                raise SystemExit("the comparison does not go on")
            time.sleep(0.02)
        time.sleep(rng.random())
        ended = process.poll() is not None
        os.kill(process.pid, signal.SIGKILL)  # its workers notice by themselves
        process.communicate()
        time.sleep(1.0)
        rows.append([str(number + 1), f"{count_finished(out)} of {cells}", "ended before" if ended else "killed"])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Kill, resume, compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("arms", 4), ("seeds", 3), ("kills", 10), ("parallel", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = write_comparison(Path(folder), options.arms, options.seeds)
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        seconds = finish(file, whole, 1)
        cells = count_finished(whole)
        rows = kill_and_resume(
            file, killed, kills=options.kills, cells=cells, parallel=options.parallel, patience=10 * seconds
        )
        finish(file, killed, options.parallel)
        same = {name: comparable(whole, name) == comparable(killed, name) for name in FILES}
    verdicts = ", ".join(f"{name} {'the same bytes' if equal else 'DIFFERENT'}" for name, equal in same.items())
    print(verdicts)
    lines = [
        "# A comparison that is killed",
        "",
        f"`python -m benchmarks.comparison_kills --arms {options.arms} --seeds {options.seeds} --kills {options.kills} "
        f"--parallel {options.parallel}`: tiny models, a fine-tuned",
        f"task and minimal pairs; {cells} cells. `meristem compare` is killed with SIGKILL and resumed with the same",
        "command; in the end it is compared with a comparison that ran one cell after the other without interruption:",
        f"**{verdicts}** (minutes, speed and memory left out).",
        "",
        table(["kill", "cells finished by then", ""], rows),
        "",
    ]
    (RESULTS / "comparison-kills.md").write_text("\n".join(lines), encoding="utf-8")
    if not all(same.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
