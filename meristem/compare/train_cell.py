"""Training of one cell: its recipe, the run folder it trains in, and the record of what it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder
from meristem.compare.cells import Cell
from meristem.compare.comparison_settings import ComparedTaskSettings, ComparisonSettings
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.overrides import apply_overrides
from meristem.config.recipe import Recipe, read_recipe
from meristem.finetune import finetuning
from meristem.recipe_resolution import resolve_pretrain_recipe, resolve_task_recipe
from meristem.training import pretraining
from meristem.utils import untrusted_files

CELLS = "cells"
CELL_FILE = "cell.json"
"""What a finished cell was trained with; in its run folder."""
FIXED = {"train.threads": 1, "train.compile": False}
"""Every cell: cores are used by training several at once, and the threads of a product change its rounding, as does
compilation, which a run would choose by timing."""


def run_path(out: Path, name: str) -> Path:
    """The run folder of a cell."""
    return out / CELLS / name


def is_finished(out: Path, name: str) -> bool:
    """Whether a cell's run has finished."""
    return RunFolder(run_path(out, name)).finish_record is not None


def train_cell(cell: Cell, comparison: ComparisonSettings, out: Path) -> None:
    """Train a cell until its budget is used up; resumes."""
    path, quiet = run_path(out, cell.name), Console(quiet=True)
    if cell.kind == "task":
        finetuning.finetune(resolve_task_cell(cell, comparison, out), path, fresh=False, console=quiet)
    else:
        pretraining.pretrain(resolve_pretrain_cell(cell, comparison), path, fresh=False, console=quiet)
    disk.atomic_write(path / CELL_FILE, [untrusted_files.to_json(describe_cell(cell, comparison)).encode()])


def describe_cell(cell: Cell, comparison: ComparisonSettings) -> dict[str, Any]:
    """What a cell is trained with, as plain data."""
    recipe = comparison.arms[cell.arm].recipe
    described: dict[str, Any] = {"settings": dict(cell.settings), "learning_rate": cell.learning_rate}
    if cell.task is None:
        source = comparison.source if isinstance(comparison.source, str) else list(comparison.source)
        return {**described, "recipe": recipe, "source": source}
    data = cell.task.data if isinstance(cell.task.data, str) else dict(cell.task.data)
    return {**described, "start": cell.start, "data": data, "method": cell.task.method, "labels": cell.labels}


def refuse_changed_cell(cell: Cell, comparison: ComparisonSettings, out: Path) -> None:
    """Raise if a finished cell was trained with something else than the comparison now says."""
    file = run_path(out, cell.name) / CELL_FILE
    if not file.is_file():
        return
    trained = untrusted_files.read_json_object(file)
    current = untrusted_files.parse_json(untrusted_files.to_json(describe_cell(cell, comparison)), str(file))
    changed = sorted(_changed_keys(trained, current))
    if changed:
        raise MeristemError(
            f"{file.parent} was trained with other settings than the comparison now has ({', '.join(changed[:3])}): "
            "choose another --out, or delete that folder"
        )


def _changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    flat = [
        {**{key: value for key, value in of.items() if key != "settings"}, **of["settings"]} for of in (before, now)
    ]
    return {key for key in {*flat[0], *flat[1]} if flat[0].get(key) != flat[1].get(key)}


def resolve_pretrain_cell(cell: Cell, comparison: ComparisonSettings) -> Recipe:
    """The recipe of a pretraining cell, its learning rates multiplied."""
    recipe = comparison.arms[cell.arm].recipe
    assert recipe is not None
    settings = {**_fixed(comparison), **cell.settings}
    if cell.learning_rate != 1.0:
        train = apply_overrides(read_recipe(recipe)[1], settings).get("train") or {}
        for key in ("learning_rate", "muon_learning_rate"):
            if train.get(key) is not None:
                settings[f"train.{key}"] = float(train[key]) * cell.learning_rate
    return resolve_pretrain_recipe(recipe, settings, comparison.source)


def _fixed(comparison: ComparisonSettings) -> dict[str, Any]:
    """What is the same in all runs unless a setting says otherwise."""
    return {**FIXED, "train.precision": comparison.precision}


def resolve_task_cell(cell: Cell, comparison: ComparisonSettings, out: Path) -> Recipe:
    """The recipe of a task's cell."""
    assert cell.task is not None
    overrides = {**_fixed(comparison), **_data_settings(cell.task), "train.seed": cell.seed}
    overrides["from"] = "scratch" if cell.start is None else str(run_path(out, cell.start))
    if cell.labels is not None:
        overrides["data.limit"] = cell.labels
    if cell.task.method == "probe":
        overrides["from.train"] = "head"
    return resolve_task_recipe(task_recipe(cell.task), {**overrides, **cell.settings})


COLUMNS_OF_OTHER_TASKS = {"question", "passage", "answers", "choices", "turns", "target", "intent", "image", "words"}
"""Named columns that do not say whether the task is classification, pairs or tagging."""


def check_task_data(task: ComparedTaskSettings) -> None:
    """Raise if a file of a task does not exist, or if it is not clear which task it is."""
    task_recipe(task)
    settings = _data_settings(task)
    for split in ("train", "validation", "test"):
        files = settings.get(f"data.{split}") or ()
        for file in (files,) if isinstance(files, str) else files:
            if ":" not in file and not Path(file).exists():
                raise MeristemError(f"{file}: no such file or folder")


def task_recipe(task: ComparedTaskSettings) -> str:
    """The recipe of a task; guessed from the name of its file if the comparison does not say."""
    if task.task is not None:
        return task.task
    source = task.data if isinstance(task.data, str) else str(task.data.get("train"))
    columns = set() if isinstance(task.data, str) else set(task.data) & COLUMNS_OF_OTHER_TASKS
    if columns:
        raise RecipeError(f"comparison.tasks: {source}: say which task has {', '.join(sorted(columns))}, as task: span")
    if not isinstance(task.data, str) and "text_b" in task.data:
        return "pair"
    name = source.partition("?")[0]
    if name.startswith("builtin:microworld-"):
        return {"pos": "tagging", "entities": "entities"}.get(name.rpartition("-")[2], name.rpartition("-")[2])
    return "tagging" if Path(name).suffix in {".conll", ".bio", ".iob"} else "classification"


def _data_settings(task: ComparedTaskSettings) -> dict[str, Any]:
    """Settings of `data`, dotted key → value."""
    if not isinstance(task.data, str):
        return {f"data.{key}": value for key, value in task.data.items()}
    if not task.data.startswith("builtin:"):
        return {"data.train": task.data}
    joined = "&" if "?" in task.data else "?"  # sets whose seeds differ modulo three share no sample
    splits = {"train": "size=1000&seed=1", "validation": "size=400&seed=2", "test": "size=400&seed=3"}
    return {f"data.{split}": f"{task.data}{joined}{options}" for split, options in splits.items()}
