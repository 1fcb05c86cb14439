"""Running a comparison: cells one after the other, resumable, with a progress display; then measures and report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder
from meristem.compare.build_report import build_report
from meristem.compare.cells import Cell, pretrain_cells, task_cells, trial_cells
from meristem.compare.comparison_report import ComparisonReport
from meristem.compare.comparison_settings import ComparisonSettings
from meristem.compare.measures import read_run, score_pairs
from meristem.config.errors import MeristemError
from meristem.config.overrides import apply_overrides
from meristem.config.recipe import read_recipe
from meristem.finetune import finetuning
from meristem.recipe_resolution import resolve_pretrain_recipe, resolve_task_recipe
from meristem.training import pretraining

CELLS = "cells"
COMPARISON_FILE = "comparison.yaml"


@dataclass
class Progress:
    """Cells done, and the time left by the minutes of those that ran."""

    console: Console
    total: int
    done: int = 0
    minutes: list[float] = field(default_factory=list)

    def start(self, cell: Cell) -> None:
        """Say which cell starts, and how long the rest will take."""
        left = ""
        if self.minutes:
            remaining = sum(self.minutes) / len(self.minutes) * (self.total - self.done)
            left = f", about {remaining:.0f} min left" if remaining >= 1 else ", less than a minute left"
        self._print(f"Cell {self.done + 1} of {self.total}: {cell.name}{left}")

    def finish(self, minutes: float | None) -> None:
        """Count a finished cell; None for one that had finished before."""
        self.done += 1
        if minutes is not None:
            self.minutes.append(minutes)

    def fail(self, cell: Cell, error: MeristemError) -> None:
        """Report a failed cell, which does not stop the others."""
        self.done += 1
        self._print(f"Cell {cell.name} failed: {error}")

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def run_comparison(comparison: ComparisonSettings, out: Path, console: Console) -> ComparisonReport:
    """Run all cells that have not finished, measure them, and write the report; the same call resumes."""
    _check(comparison)
    out.mkdir(parents=True, exist_ok=True)
    described = yaml.safe_dump(comparison.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    disk.atomic_write(out / COMPARISON_FILE, [described.encode()])
    trials = list(trial_cells(comparison))
    cells_left = comparison.seeds * len(comparison.arms) + len(list(task_cells(comparison)))
    progress = Progress(console=console, total=len(trials) + cells_left)
    _run_cells(trials, comparison, out, progress)
    learning_rates = best_learning_rates(trials, out)
    pretrained = list(pretrain_cells(comparison, learning_rates))
    _run_cells(pretrained, comparison, out, progress)
    tuned = list(task_cells(comparison))
    _run_cells([cell for cell in tuned if is_finished(out, f"{cell.arm}--s{cell.seed}")], comparison, out, progress)
    for pairs in comparison.pairs:
        for cell in pretrained:
            if is_finished(out, cell.name):
                score_pairs(run_path(out, cell.name), pairs)
    report = build_report(comparison, out, pretrained, tuned, learning_rates)
    report.write(out)
    return report


def run_path(out: Path, name: str) -> Path:
    """The run folder of a cell."""
    return out / CELLS / name


def is_finished(out: Path, name: str) -> bool:
    """Whether a cell's run has finished."""
    return RunFolder(run_path(out, name)).finish_record is not None


def best_learning_rates(trials: Sequence[Cell], out: Path) -> dict[str, float]:
    """Arm → multiple of its learning rate with the lowest validation loss; without trials empty."""
    losses: dict[str, dict[float, float]] = {}
    for cell in trials:
        measures = read_run(run_path(out, cell.name))
        if measures is not None and "loss" in measures.values:
            losses.setdefault(cell.arm, {})[cell.learning_rate] = measures.values["loss"]
    return {arm: min(by_rate, key=lambda rate: by_rate[rate]) for arm, by_rate in losses.items()}


def _check(comparison: ComparisonSettings) -> None:
    """Refuse wrong recipes, settings and missing files before anything is trained."""
    for cell in [*trial_cells(comparison), *pretrain_cells(comparison, {})]:
        if cell.seed == 0:
            _resolve_pretrain(cell, comparison)
    for path in (*comparison.pairs, *(task.data for task in comparison.tasks if not task.data.startswith("builtin:"))):
        if not Path(path).exists():
            raise MeristemError(f"{path}: no such file or folder")


def _run_cells(cells: Sequence[Cell], comparison: ComparisonSettings, out: Path, progress: Progress) -> None:
    for cell in cells:
        if is_finished(out, cell.name):
            progress.finish(None)
            continue
        progress.start(cell)
        start = time.monotonic()
        try:
            _train(cell, comparison, out)
        except MeristemError as error:
            if getattr(error, "signal_number", None) is not None:
                raise
            progress.fail(cell, error)
        else:
            progress.finish((time.monotonic() - start) / 60)


def _train(cell: Cell, comparison: ComparisonSettings, out: Path) -> None:
    quiet = Console(quiet=True)
    if cell.kind == "task":
        recipe = resolve_task_recipe(_task_recipe(cell), _task_overrides(cell, out))
        finetuning.finetune(recipe, run_path(out, cell.name), fresh=False, console=quiet)
    else:
        pretraining.pretrain(_resolve_pretrain(cell, comparison), run_path(out, cell.name), fresh=False, console=quiet)


def _resolve_pretrain(cell: Cell, comparison: ComparisonSettings) -> Any:
    """The recipe of a pretraining cell, its learning rates multiplied."""
    arm = comparison.arms[cell.arm]
    mapping = read_recipe(arm.recipe)[1]
    settings = dict(cell.settings)
    if cell.learning_rate != 1.0:
        train = apply_overrides(mapping, settings).get("train") or {}
        for key in ("learning_rate", "muon_learning_rate"):
            if train.get(key) is not None:
                settings[f"train.{key}"] = float(train[key]) * cell.learning_rate
    return resolve_pretrain_recipe(arm.recipe, settings, comparison.source)


def _task_recipe(cell: Cell) -> str:
    assert cell.task is not None
    if cell.task.task is not None:
        return cell.task.task
    name = cell.task.data.partition("?")[0]
    if name.startswith("builtin:microworld-"):
        return {"pos": "tagging", "entities": "entities"}.get(name.rpartition("-")[2], name.rpartition("-")[2])
    return "tagging" if Path(name).suffix in {".conll", ".bio", ".iob"} else "classification"


def _task_overrides(cell: Cell, out: Path) -> dict[str, Any]:
    assert cell.task is not None
    data = cell.task.data
    overrides: dict[str, Any] = {"from": str(run_path(out, f"{cell.arm}--s{cell.seed}")), "train.seed": cell.seed}
    if data.startswith("builtin:"):  # sets whose seeds differ modulo three share no sample
        joined = "&" if "?" in data else "?"
        splits = {"train": "size=1000&seed=1", "validation": "size=400&seed=2", "test": "size=400&seed=3"}
        overrides |= {f"data.{split}": f"{data}{joined}{options}" for split, options in splits.items()}
    else:
        overrides["data.train"] = data
    if cell.labels is not None:
        overrides["data.limit"] = cell.labels
    if cell.task.method == "probe":
        overrides["from.train"] = "head"
    return {**overrides, **cell.settings}
