"""Cells of the record table: one recipe, budget and seed; an ordinary run that resumes, with one result file."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.records.measures import measure_pairs
from benchmarks.records.tracks import TRACKS, write_source
from benchmarks.side_by_side import RESULTS
from meristem import api
from meristem.blocks.bfloat16_speed import bfloat16_features

CELLS = RESULTS / "records"
ROOT = Path(__file__).resolve().parents[2]
HELD_OUT = {"corpus.validation": 0.01, "corpus.test": 0.0, "corpus.deduplicate": False}
SAVE_EVERY = "10m"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training run of the record table."""

    track: str
    label: str
    """Name of the recipe with its overrides in the table."""
    recipe: str
    overrides: Mapping[str, object]
    budget: str
    """`minutes=30` or `flops=1e15`."""
    seed: int

    @property
    def name(self) -> str:
        """File name of its run and of its result, without suffix."""
        return f"{self.track}--{self.label}--{self.budget.replace('=', '')}--s{self.seed}"

    @property
    def path(self) -> Path:
        """Its result file."""
        return CELLS / f"{self.name}.json"

    def settings(self) -> dict[str, object]:
        """All overrides of its run: those of the track, of the cell, its budget and its seed."""
        kind, _, amount = self.budget.partition("=")
        return {
            **HELD_OUT,
            **TRACKS[self.track].settings,
            "train.save_every": SAVE_EVERY,
            **self.overrides,
            f"train.{kind}": float(amount),
            "train.seed": self.seed,
        }


def train_cell(cell: Cell, data: Path, work: Path, pairs_limit: int | None, console: Console) -> dict[str, Any]:
    """Train or resume a cell, measure it on the development halves, and write its result file; a finished cell is
    read."""
    if cell.path.is_file():
        return read_cell(cell.path)
    source = write_source(TRACKS[cell.track], data, work)
    run = work / cell.name
    result = api.pretrain(cell.recipe, cell.settings(), source=str(source), out=run, console=console)
    record = {
        "track": cell.track,
        "label": cell.label,
        "recipe": cell.recipe,
        "overrides": dict(cell.overrides),
        "budget": cell.budget,
        "seed": cell.seed,
        "metrics": dict(result.metrics),
        "used": dict(result.used),
        "pairs": {"development": measure_pairs(run, TRACKS[cell.track], data, "development", pairs_limit)},
        "pairs_limit": pairs_limit,
        **environment(),
    }
    write_cell(cell.path, record)
    return record


def measure_final(cell_path: Path, data: Path, work: Path) -> dict[str, Any]:
    """Measure a finished cell on the test halves of its minimal pairs, once, and add them to its result file."""
    record = read_cell(cell_path)
    if "test" not in record["pairs"]:
        run = work / cell_path.stem
        record["pairs"]["test"] = measure_pairs(run, TRACKS[record["track"]], data, "test", None)
        write_cell(cell_path, record)
    return record


def read_cell(path: Path) -> dict[str, Any]:
    """The record in a result file."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def write_cell(path: Path, record: Mapping[str, Any]) -> None:
    """Write a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def environment() -> dict[str, Any]:
    """Commit, processor, its bfloat16 features, threads and torch version."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip(),
        "processor": processor_name(),
        "bfloat16": sorted(bfloat16_features()),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def processor_name() -> str:
    """The processor's model name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
