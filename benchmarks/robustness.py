"""Robustness of small taggers and classifiers, trained without and with noise, on four public data sets.

    python -m benchmarks.robustness ../shared/data [--only "UD POS" …] [--seeds 3] [--work FOLDER]

Each cell (data set, arm, seed) is a fine-tuning from scratch and its robustness report; its numbers are a file in
docs/results/trust, and an existing cell is not run again. docs/results/robustness.md is generated from them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.tasks_rows import UD, _sst, _weibo
from meristem import api
from meristem.checkpoint.load_run import load_run
from meristem.trust.robustness.run_robustness import RobustnessOptions, measure_robustness

CELLS = Path("docs/results/trust")
PAGE = Path("docs/results/robustness.md")
SEVERITY, MAX_SEEDS = 0.3, 20
MODEL = (
    "model.layers=2",
    "model.hidden_size=128",
    "model.heads=4",
    "model.max_length=128",
    "tokenizer.vocab_size=8000",
)
TRAINING = ("from=scratch", "train.learning_rate=1e-3", "train.batch_samples=32", "train.schedule=linear",
            "train.warmup=0.1", "train.optimizer=adamw")  # fmt: skip
BASE = "clean"
ARMS = {
    BASE: (),
    "augmented": ("data.augment=true",),
}
"""Arm → settings; both arms make the same number of steps. The defaults of `data.augment` were chosen on UD POS."""


def _chnsenticorp(data: Path, work: Path) -> list[str]:
    folder = data / "chnsenticorp"
    return [f"data.train={folder / 'train.tsv'}", f"data.validation={folder / 'dev.tsv'}",
            f"data.test={folder / 'test.tsv'}", "data.text=text_a", "data.label=label"]  # fmt: skip


@dataclass(frozen=True)
class DataSet:
    """A task on its data."""

    task: str
    files: Callable[[Path, Path], list[str]]
    settings: tuple[str, ...]
    split: str
    """The setting of the file that is measured."""


DATA_SETS = {
    "SST-2": DataSet("classification", _sst, ("task.pooling=mean", "data.limit=10000", "train.epochs=3"), "validation"),
    "UD POS": DataSet("tagging", UD, ("data.limit=4000", "train.epochs=4"), "test"),
    "ChnSentiCorp": DataSet("classification", _chnsenticorp,
                            ("task.pooling=mean", "train.epochs=3", "tokenizer.kind=characters"), "test"),
    "Weibo NER": DataSet("tagging", _weibo, ("train.epochs=12", "tokenizer.kind=characters"), "test"),
}  # fmt: skip


def measure(name: str, arm: str, seed: int, options: argparse.Namespace) -> None:
    """One cell: fine-tune or resume, measure, and store the numbers."""
    file = cell_file(name, arm, seed)
    if file.is_file():
        return
    print(name, "|", arm, "|", seed, flush=True)
    data_set, started = DATA_SETS[name], time.monotonic()
    files = data_set.files(options.data, options.work)
    settings = [*files, *MODEL, *TRAINING, *data_set.settings, *ARMS[arm], f"train.seed={seed}"]
    out = options.work / file.stem
    api.finetune(data_set.task, settings, out=out, console=Console(stderr=True))
    measured = next(item.partition("=")[2] for item in files if item.startswith(f"data.{data_set.split}="))
    report = measure_robustness(
        load_run(out), data=measured, options=RobustnessOptions(severities=(SEVERITY,), seed=seed, limit=500)
    )
    cell = {
        "data": name,
        "arm": arm,
        "seed": seed,
        "minutes": round((time.monotonic() - started) / 60, 2),
        "metric": report.metric,
        "samples": report.num_samples,
        "clean": report.clean[report.metric],
        "calibration_error": report.calibration and report.calibration.error,
        "noisy_calibration_error": report.noisy_calibration and report.noisy_calibration.error,
        "results": {
            result.perturbation: {
                "value": result.metrics[report.metric],
                "drop": result.drop,
                "interval": result.drop_interval,
                "changed": result.changed,
                "label_risk": bool(result.label_risk),
            }
            for result in report.measured
        },
        "failed_requests": [item.name for item in report.hostile_requests if item.outcome == "failed"],
    }
    file.write_text(json.dumps(cell, indent=1) + "\n", encoding="utf-8")


def cell_file(name: str, arm: str, seed: int) -> Path:
    """The file of a cell."""
    return CELLS / f"robustness--{name.lower().replace(' ', '-')}--{arm}--{seed}.json"


# ------------------------------------------------------------ the page


def read_cells(name: str, arm: str) -> list[dict[str, Any]]:
    """The cells of one data set and arm, by seed."""
    return [
        json.loads(file.read_text(encoding="utf-8"))
        for seed in range(100)
        if (file := cell_file(name, arm, seed)).is_file()
    ]


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def mean_drop(cell: dict[str, Any]) -> float:
    """The mean drop under all perturbations that leave labels as they are, from this cell's own clean metric."""
    return statistics.mean(result["drop"] for result in cell["results"].values() if not result["label_risk"])


def noisy_mean(cell: dict[str, Any]) -> float:
    """The mean metric under those perturbations."""
    return statistics.mean(result["value"] for result in cell["results"].values() if not result["label_risk"])


def summary(name: str) -> list[str]:
    """The tables and the verdicts of one data set, one for each arm with noise."""
    lines = [f"## {name}", ""]
    tables = [line for arm in ARMS if arm != BASE for line in arm_lines(name, arm)]
    return [*lines, *(tables or ["Not measured yet.", ""])]


def arm_lines(name: str, arm: str) -> list[str]:
    """The table and the verdict of one arm beside the one without noise, over the seeds that both have."""
    noisy_cells = {cell["seed"]: cell for cell in read_cells(name, arm)}
    pairs = [(cell, noisy_cells[cell["seed"]]) for cell in read_cells(name, BASE) if cell["seed"] in noisy_cells]
    if not pairs:
        return []
    clean_cells, augmented_cells = zip(*pairs, strict=True)
    seeds = "one seed" if len(pairs) == 1 else f"mean ± standard deviation over {len(pairs)} seeds"
    lines = [
        f"{clean_cells[0]['metric']} in points on {clean_cells[0]['samples']:,} samples, {seeds}; severity "
        f"{SEVERITY:g}; noise in training: `{' '.join(ARMS[arm])}`.",
        "",
        "| perturbation | trained on clean text | with noise | recovered |",
        "| --- | --- | --- | --- |",
        f"| none | {_mean([c['clean'] for c in clean_cells])} | {_mean([c['clean'] for c in augmented_cells])} | |",
    ]
    clean = statistics.mean(cell["clean"] for cell in clean_cells)
    by_value = {item: [cell["results"][item]["value"] for cell in clean_cells] for item in clean_cells[0]["results"]}
    for item, values in sorted(by_value.items(), key=lambda entry: statistics.mean(entry[1])):
        others = [cell["results"][item]["value"] for cell in augmented_cells]
        lost, gained = clean - statistics.mean(values), statistics.mean(others) - statistics.mean(values)
        star = "\\*" if clean_cells[0]["results"][item]["label_risk"] else ""
        recovered = f"{100 * gained / lost:.0f} %" if lost > 0.01 else ""
        lines.append(f"| {item}{star} | {_mean(values)} | {_mean(others)} | {recovered} |")
    return [*lines, "", verdict(pairs), ""]


def verdict(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """What noise in training wins back, and what it costs on clean text."""
    lost = [mean_drop(clean) for clean, _ in pairs]
    gained = [noisy_mean(augmented) - noisy_mean(clean) for clean, augmented in pairs]
    cost = [clean["clean"] - augmented["clean"] for clean, augmented in pairs]
    share = statistics.mean(gained) / statistics.mean(lost)
    reached = "reached" if share >= 0.5 and statistics.mean(cost) <= 0.01 else "not reached"
    return (
        f"Mean over the perturbations that leave labels as they are: {_mean(lost)} points lost, {_mean(gained)} won "
        f"back with noise in training ({100 * share:.0f} %), {_mean(cost)} points lost on "
        "clean text. The aim, at least "
        f"half won back at no more than 1 point on clean text, is {reached}."
    )


def write_page() -> None:
    """docs/results/robustness.md from all cells."""
    lines = [
        "# Robustness",
        "",
        "Small encoders (2 layers of 128, trained from scratch on each data set) under noise, trained without and "
        "with noise (`data.augment`) for the same number of steps. Made by "
        "`python -m benchmarks.robustness ../shared/data`; the cells are in [trust](trust). "
        "\\* The label may change with "
        "the text. Recovered: the part of the loss that is won back, where more than a point is lost.",
        "",
    ]
    for name in DATA_SETS:
        lines += summary(name)
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def main() -> None:
    """Run the missing cells, and write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="*", choices=DATA_SETS, metavar="NAME", help=f"some of: {', '.join(DATA_SETS)}")
    parser.add_argument("--arms", nargs="*", choices=ARMS, help="some of the arms; all if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/robustness"))
    options = parser.parse_args()
    for folder in (options.work, CELLS):
        folder.mkdir(parents=True, exist_ok=True)
    for name in options.only or DATA_SETS:
        for seed in range(options.seeds):
            for arm in options.arms or ARMS:
                measure(name, arm, seed, options)
                write_page()
    write_page()


if __name__ == "__main__":
    main()
