"""Fine-tuning against counting: heads with and without n-grams, and the linear baseline on the same labels.

    python -m benchmarks.counting ../shared/data --encoder RUN --chinese RUN [--only CELL …] [--seeds 3] [--work FOLDER]

The same settings without and with task.ngram_buckets (1,048,576; tags 262,144), seed by seed, from pretrained weights
or from scratch. The mixture of a head is fitted and its epoch chosen on validation data; test data are read once, at
the end of a run. Each cell is a file in docs/results/counting, a cell that exists is not run again, and the table in
docs/results/counting.md is generated from them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS, table
from meristem import api
from meristem.metrics import linear_baseline

CELLS, PAGE = RESULTS / "counting", RESULTS / "counting.md"
BUCKETS = {"classification": 1 << 20, "tagging": 1 << 18}
SST = ("sst2/train.tsv", "sst2/dev.tsv", "sst2/test-labeled.tsv")
CHN = ("chnsenticorp/train.tsv", "chnsenticorp/dev.tsv", "chnsenticorp/test.tsv")
UD = ("ud_ewt/train.tsv", "ud_ewt/dev.tsv", "ud_ewt/test.tsv")
FEW = ("data.limit=500", "train.epochs=6", "train.evaluate_every=3epoch")
SCRATCH = ("from.load=nothing", "train.learning_rate=5e-4")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A data set, the run to start from, and the settings of both heads."""

    name: str
    task: str
    files: tuple[str, str, str]
    start: str
    """`encoder` or `chinese`: the option with the pretrained run."""
    settings: tuple[str, ...]


SETUPS = {
    setup.name: setup
    for setup in (
        Setup(name="sst2-500", task="classification", files=SST, start="encoder", settings=("task.pooling=mean", *FEW)),
        Setup(name="sst2-500-scratch", task="classification", files=SST, start="encoder",
              settings=("task.pooling=mean", *FEW, *SCRATCH)),
        Setup(name="chnsenticorp-500", task="classification", files=CHN, start="chinese",
              settings=("task.pooling=mean", "task.max_length=64", *FEW)),
        Setup(name="sst2", task="classification", files=SST, start="encoder",
              settings=("task.pooling=mean", "train.epochs=1")),
        Setup(name="chnsenticorp", task="classification", files=CHN, start="chinese",
              settings=("task.pooling=mean", "task.max_length=64", "train.epochs=2", "train.evaluate_every=2epoch")),
        Setup(name="ud-pos", task="tagging", files=UD, start="encoder",
              settings=("train.epochs=3", "train.evaluate_every=3epoch")),
    )
}  # fmt: skip


def measure(setup: Setup, buckets: int, seed: int, options: argparse.Namespace) -> None:
    """One cell: a run, its metrics, and the linear baseline of its report."""
    file = CELLS / f"{setup.name}--{buckets}--{seed}.json"
    if file.is_file():
        return
    print(file.stem, flush=True)
    started = time.process_time()
    splits = ("train", "validation", "test")
    out = options.work / file.stem
    result = api.finetune(
        setup.task,
        [*(f"data.{split}={options.data / path}" for split, path in zip(splits, setup.files, strict=True)),
         f"from={getattr(options, setup.start)}", *setup.settings, f"task.ngram_buckets={buckets}",
         f"train.seed={seed}", f"data.seed={seed}", "train.threads=1", "train.trackers=[]"],
        out=out,
        console=Console(stderr=True, quiet=True),
    )  # fmt: skip
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    cell = {
        "setup": setup.name,
        "buckets": buckets,
        "seed": seed,
        "validation": result.metrics,
        "test": result.test,
        "linear_test": report["baselines"][linear_baseline.NAME],
        "processor_minutes": round((time.process_time() - started) / 60, 2),
        "torch": torch.__version__,
    }
    CELLS.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(cell, indent=1) + "\n", encoding="utf-8")


def read_cells() -> list[dict[str, Any]]:
    """All stored cells."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(CELLS.glob("*.json"))]


def page_rows(cells: list[dict[str, Any]]) -> list[list[str]]:
    """A row per set, head and split, from the seeds that both heads have."""
    rows = []
    for setup, wide_buckets in ((name, BUCKETS[setup.task]) for name, setup in SETUPS.items()):
        by_head = {
            buckets: {cell["seed"]: cell for cell in cells if (cell["setup"], cell["buckets"]) == (setup, buckets)}
            for buckets in (0, wide_buckets)
        }
        seeds = sorted(set(by_head[wide_buckets]))
        if not seeds:
            continue
        plain = [by_head[0][seed] for seed in seeds if seed in by_head[0]]
        wide = [by_head[wide_buckets][seed] for seed in seeds]
        linear = [cell["linear_test"] for cell in wide]
        rows.append(
            [
                setup,
                str(len(seeds)),
                spread([cell["validation"]["accuracy"] for cell in plain]),
                spread([cell["validation"]["accuracy"] for cell in wide]),
                spread([cell["test"]["accuracy"] for cell in plain]),
                spread([cell["test"]["accuracy"] for cell in wide]),
                spread([values["accuracy"] for values in linear]),
            ]
        )
    return rows


def spread(values: list[float]) -> str:
    """Mean, lowest and highest value in per cent."""
    if not values:
        return "–"
    mean, low, high = (100 * value for value in (statistics.fmean(values), min(values), max(values)))
    return f"{mean:.1f} ({low:.1f}–{high:.1f})" if len(values) > 1 else f"{mean:.1f}"


HEADER = ["data", "seeds", "validation, states", "validation, with n-grams",
          "test, states", "test, with n-grams", "test, linear n-grams"]  # fmt: skip


def write_page() -> None:
    """The table between the markers of the page; the text around it is written by hand."""
    begin, end = "<!-- table -->\n", "<!-- end of table -->"
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{table(HEADER, page_rows(read_cells()))}\n\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Run the missing cells, seed by seed, and write the table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", type=Path, help="an English run of `meristem pretrain`")
    parser.add_argument("--chinese", type=Path, help="a Chinese one")
    parser.add_argument("--only", nargs="*", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/counting"))
    options = parser.parse_args()
    for name in options.only:
        for seed in range(options.seeds):
            for buckets in (BUCKETS[SETUPS[name].task], 0):
                if getattr(options, SETUPS[name].start) is not None:
                    measure(SETUPS[name], buckets, seed, options)
                    write_page()


if __name__ == "__main__":
    main()
