"""Training through the Python API: pretrain, finetune, reinforce."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.config.recipe import read_recipe
from meristem.finetune import finetuning
from meristem.in_memory_data import TableLike, store_data, store_source
from meristem.recipe_resolution import Overrides, resolve_pretrain_recipe, resolve_task_recipe, task_run_name
from meristem.reinforce import reinforcement
from meristem.reinforce_resolution import prepare_reinforce
from meristem.training import pretraining
from meristem.training.run_result import RunResult
from meristem.utils.console import TerminalConsole


def pretrain(
    recipe: str | Path = "bert-mini",
    overrides: Overrides = (),
    *,
    source: str | Path | TableLike | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Pretrain a model on text; the same call again resumes an interrupted run.

    Args:
        recipe: A recipe's name or YAML file, or a run to continue from.
        overrides: Settings, {"train.minutes": 3} or ["train.minutes=3"].
        source: A file, folder, glob, builtin:NAME or hub:OWNER/NAME, or the texts themselves: a list of strings, a list
            of mappings with a column `text`, or a DataFrame; these are stored in the run's folder, so that it can
            resume.
        out: The run's folder; default: runs/ and the recipe's name.
        fresh: Start from scratch; an existing run is renamed, never deleted.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    folder = Path(out) if out is not None else Path("runs") / read_recipe(recipe)[0]
    source_path, fresh = store_source(source, folder, fresh=fresh)
    resolved = resolve_pretrain_recipe(recipe, overrides, source_path)
    return pretraining.pretrain(resolved, folder, fresh=fresh, console=console or TerminalConsole(stderr=True))


def finetune(
    recipe: str | Path | None = None,
    overrides: Overrides = (),
    *,
    data: TableLike | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Fine-tune a model on labelled data; the same call again resumes an interrupted run.

    Args:
        recipe: A task's name (classification, tagging, …) or a YAML file.
        overrides: Settings; {"from": "runs/bert-mini"} starts from a run or a folder of transformers.
        data: Splits, {"train": …, "validation": …, "test": …}, each a file, a list of mappings or a DataFrame, and the
            names of columns, {"text": "review", "label": "stars"}; or the training split alone. Data in memory are
            stored in the run's folder, so that the run can resume.
        out: The run's folder; default: runs/ and the recipe's name.
        fresh: Start from scratch; an existing run is renamed, never deleted.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    folder = Path(out) if out is not None else Path("runs") / task_run_name(recipe, overrides)
    overrides, fresh = store_data(data, overrides, folder, fresh=fresh)
    resolved = resolve_task_recipe(recipe, overrides)
    return finetuning.finetune(resolved, folder, fresh=fresh, console=console or TerminalConsole(stderr=True))


def reinforce(
    recipe: str | Path,
    overrides: Overrides = (),
    *,
    data: TableLike | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Fine-tune a generative model with rewards (policy gradients); the same call again resumes an interrupted run.

    A start model given as a recipe is trained first, and rewards that need fitting are fitted first.

    Args:
        recipe: A recipe with rewards: its name or YAML file.
        overrides: Settings, {"train.minutes": 3} or ["train.minutes=3"].
        data: The prompts, in the same forms as in `finetune`.
        out: The run's folder; default: runs/ and the recipe's name.
        fresh: Start from scratch; an existing run is renamed, never deleted.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    folder = Path(out) if out is not None else Path("runs") / read_recipe(recipe)[0]
    overrides, fresh = store_data(data, overrides, folder, fresh=fresh)
    console = console or TerminalConsole(stderr=True)
    setup = prepare_reinforce(recipe, overrides, folder, console)
    return reinforcement.reinforce(
        setup.recipe, folder, rewards=setup.rewards, judge=setup.judge, fresh=fresh, console=console
    )
