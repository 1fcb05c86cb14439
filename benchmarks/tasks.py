"""Benefit of pretraining: every task on real data, fine-tuned from a pretrained run and from scratch, three seeds.

    python -m benchmarks.tasks ../shared/data [--only ROW …] [--seeds 3] [--work FOLDER]

Runs are folders in --work and are resumed; each cell's numbers are a file in docs/results/tasks, and an existing cell
is not run again, so that the whole can take several days. docs/results/tasks.md is generated from them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

from rich.console import Console

from benchmarks.tasks_page import CELLS, write
from benchmarks.tasks_pretraining import BEFORE, pretrained
from benchmarks.tasks_rows import PAIRS, ROWS, Row, Start
from meristem import api
from meristem.config.errors import MeristemError
from meristem.training.stop_signals import TrainingStopped


def measure(row: Row, start: Start, seed: int, options: argparse.Namespace) -> None:
    """One cell: fine-tune or resume, and store its numbers."""
    file = CELLS / f"{_plain(row.name)}--{_plain(start.name)}--{seed}.json"
    if file.is_file():
        return
    before = start.before or row.before
    run = [] if before is None else [f"from={pretrained(before, options.data, options.work)}"]
    print(row.name, "|", start.name, "|", seed, flush=True)
    started = time.monotonic()
    extra_settings = [setting.replace("{data}", str(options.data)) for setting in start.settings]
    settings = [*row.data(options.data, options.work), *row.settings, *run, *extra_settings]
    settings += [f"train.seed={seed}", f"data.seed={seed}"]
    out = options.work / file.stem
    result = api.finetune(row.task, settings, out=out, console=Console(stderr=True))
    minutes = (time.monotonic() - started) / 60
    cell = {"row": row.name, "start": start.name, "seed": seed, "minutes": round(minutes, 2), "used": result.used}
    file.write_text(json.dumps({**cell, "validation": result.metrics, "test": result.test}, indent=1))


def minimal_pairs(name: str, run: Path, data: Path) -> None:
    """BLiMP minimal pairs, zero-shot."""
    file = CELLS / f"{_plain(name)}--pretrained--0.json"
    if file.is_file():
        return
    print(name, flush=True)
    start = time.monotonic()
    evaluation = api.load(run).evaluate(pairs=str(data / "blimp" / "BLiMP.zip"), limit=200)
    phenomena = [paradigm["accuracy"] for paradigm in evaluation["pairs"]["paradigms"].values()]
    numbers = {
        "accuracy": statistics.mean(phenomena),
        "phenomena": len(phenomena),
        "pairs": evaluation["samples"]["pairs"],
    }
    cell = {"row": name, "start": "pretrained", "seed": 0, "minutes": round((time.monotonic() - start) / 60, 2)}
    file.write_text(json.dumps({**cell, "validation": {}, "test": numbers}, indent=1))


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")


def main() -> None:
    """Run the missing cells, and write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    names = [*(row.name for row in ROWS), *PAIRS]
    parser.add_argument("--only", nargs="*", choices=names, metavar="ROW", help=f"some of: {'; '.join(names)}")
    parser.add_argument("--pretrain-only", nargs="*", choices=BEFORE, help="only pretrain these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/tasks"))
    options = parser.parse_args()
    for folder in (options.work, CELLS):
        folder.mkdir(parents=True, exist_ok=True)

    def start_row(name: str) -> Path:
        return pretrained(name, options.data, options.work)

    if options.pretrain_only is not None:
        for name in options.pretrain_only:
            start_row(name)
        return
    for name, before in PAIRS.items():
        if not options.only or name in options.only:
            minimal_pairs(name, start_row(before), options.data)
    for seed in range(options.seeds):
        for row in ROWS:
            if options.only and row.name not in options.only:
                continue
            for start in row.starts:
                try:
                    measure(row, start, seed, options)
                except TrainingStopped:
                    raise
                except MeristemError as error:
                    print(f"{row.name}, {start}: {error}", flush=True)
                write(options.data)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
