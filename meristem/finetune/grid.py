"""Hyperparameter grid search for fine-tuning: learning rates × epochs × seeds, and the best on validation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meristem.checkpoint import disk
from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import BEST_RUN_FILE, RunFolder, move_aside
from meristem.config.errors import MeristemError
from meristem.config.recipe import FinetuneRecipe
from meristem.training.data.training_data import selection_loss
from meristem.training.run_result import RunResult
from meristem.training.settings import BUDGETS, GridSettings
from meristem.utils import untrusted_files
from meristem.utils.shell_quoting import shell_path

GRID_JSON, GRID_PAGE = "grid.json", "grid.md"
FOLDER_NAMES = {"learning_rate": "rate"}
"""Setting → its name in the names of run folders, which stay as they were so that existing grids resume."""

TrainRun = Callable[[FinetuneRecipe, Path], RunResult]
"""Trains or resumes one run; returns at once if it is finished."""

T_QUANTILES = {2: 4.30, 4: 2.78, 6: 2.45, 8: 2.31, 10: 2.23, 12: 2.18, 14: 2.14, 16: 2.12, 18: 2.10}
"""Degrees of freedom → two-sided 95 % quantile of Student's t distribution."""


@dataclass(kw_only=True)
class GridCell:
    """One combination of settings, and the results of its runs."""

    settings: dict[str, float]
    name: str
    runs: list[RunResult] = field(default_factory=list)

    def metric_stats(self, split: str) -> dict[str, tuple[float, float]]:
        """Metric on a split → mean and standard deviation over the seeds."""
        run_metrics = [run.metrics if split == "validation" else run.test for run in self.runs]
        common_names = [
            name for name in (run_metrics[0] if run_metrics else {}) if all(name in metrics for metrics in run_metrics)
        ]
        return {name: _mean_and_std([metrics[name] for metrics in run_metrics]) for name in common_names}

    @property
    def selection_loss(self) -> tuple[float, float]:
        """Means over the seeds of the selection metric and of the loss as a tie-breaker; lower is better."""
        losses = [_run_selection_loss(run) for run in self.runs]
        return statistics.fmean(primary for primary, _ in losses), statistics.fmean(loss for _, loss in losses)


def run_grid(recipe: FinetuneRecipe, out: Path, train_run: TrainRun, *, fresh: bool, console: Console) -> RunResult:
    """Train every run that is not finished, select the best on validation, and write and print a table."""
    if fresh and out.exists():
        console.print(f"The old runs are kept as {move_aside(out)}", highlight=False, markup=False, soft_wrap=True)
    _refuse_foreign_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    cells = [cell for cell, _ in _iter_cells(recipe)]
    total = len(cells) * recipe.grid.seeds
    _write_grid_json(out, recipe, cells)
    done = 0
    for cell, (_, base) in zip(cells, _iter_cells(recipe), strict=True):
        for seed in range(recipe.grid.seeds):
            run_recipe = replace(base, train=base.train.model_copy(update={"seed": base.train.seed + seed}))
            path, done = out / f"{cell.name}-{seed + 1}", done + 1
            console.print(f"Run {done} of {total}: {path}", highlight=False, markup=False)
            cell.runs.append(_load_finished(run_recipe, path) or train_run(run_recipe, path))
            _write_grid_json(out, recipe, cells)
    best = min(cells, key=lambda cell: cell.selection_loss)
    best_run = min(best.runs, key=_run_selection_loss)
    disk.atomic_write(out / BEST_RUN_FILE, [f"{best_run.run.name}\n".encode()])
    _write_grid_json(out, recipe, cells, best, best_run)
    disk.atomic_write(out / GRID_PAGE, [render_markdown(recipe, cells, best, best_run).encode()])
    console.print(_results_table(cells, best))
    for line in _summary_lines(cells, best, best_run, out):
        console.print(line, highlight=False, markup=False)
    commands = [line.replace(shell_path(best_run.run), shell_path(out)) for line in best_run.example_commands]
    return replace(best_run, run=out, example_commands=commands)


def _iter_cells(recipe: FinetuneRecipe) -> Iterator[tuple[GridCell, FinetuneRecipe]]:
    """Every combination, with the recipe of its first seed."""
    axes = {name: getattr(recipe.grid, name) for name in ("learning_rate", "epochs") if getattr(recipe.grid, name)}
    single = GridSettings.model_validate({})
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        train_update: dict[str, Any] = dict(settings)
        if "epochs" in settings:
            train_update |= {name: None for name in BUDGETS if name != "epochs"}
        name = "-".join(f"{FOLDER_NAMES.get(axis, axis)}{value:g}" for axis, value in settings.items()) or recipe.name
        train = recipe.train.model_copy(update=train_update)
        yield (
            GridCell(settings=settings, name=name),
            replace(recipe, train=train, grid=single, name=name),
        )


def _load_finished(recipe: FinetuneRecipe, path: Path) -> RunResult | None:
    """Result of a finished run of exactly this recipe; None if there is none."""
    run = RunFolder(path)
    record = run.finish_record if run.exists() else None
    if record is None or "judged_by" not in record or load_recipe(run).to_dict() != recipe.to_dict():
        return None
    return RunResult(
        run=path,
        step=record["step"],
        metrics=record["validation"],
        test=record["test"],
        used=record["used"],
        example_commands=[f"meristem evaluate {shell_path(path)}"],
        judged_by=record["judged_by"],
    )


def _refuse_foreign_folder(out: Path) -> None:
    if RunFolder(out).exists():
        raise MeristemError(f"{out} is a run, and a grid needs a folder for several runs: choose another --out")
    if out.is_file() or (out.exists() and any(out.iterdir()) and not (out / GRID_JSON).is_file()):
        kind = "a file" if out.is_file() else "a folder that holds other files"
        raise MeristemError(f"{out} is {kind}: choose another folder with --out")


# ------------------------------------------------------------ results


def _run_selection_loss(run: RunResult) -> tuple[float, float]:
    """Selection metric and loss of a run, lower is better; infinity if not finite."""
    primary, loss = selection_loss(run.judged_by, run.metrics), run.metrics["loss"]
    return primary if math.isfinite(primary) else math.inf, loss if math.isfinite(loss) else math.inf


def _mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _write_grid_json(
    out: Path,
    recipe: FinetuneRecipe,
    cells: Sequence[GridCell],
    best: GridCell | None = None,
    best_run: RunResult | None = None,
) -> None:
    content: dict[str, Any] = {
        "grid": recipe.grid.model_dump(mode="json"),
        "cells": [
            {
                "name": cell.name,
                "settings": cell.settings,
                "validation": _stats_to_json(cell.metric_stats("validation")),
                "runs": [_run_record(run) for run in cell.runs],
            }
            for cell in cells
        ],
    }
    if best is not None and best_run is not None:
        content |= {
            "judged_by": best_run.judged_by,
            "best": {"cell": best.name, "run": best_run.run.name, "test": _stats_to_json(best.metric_stats("test"))},
        }
    disk.atomic_write(out / GRID_JSON, [untrusted_files.to_json(content, indent=1).encode()])


def _run_record(run: RunResult) -> dict[str, Any]:
    """A run as saved in grid.json, without its example commands, which are fewer if it was already finished."""
    return {name: value for name, value in asdict(run).items() if name != "example_commands"} | {"run": run.run.name}


def _stats_to_json(stats: Mapping[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
    return {name: {"mean": mean, "spread": std} for name, (mean, std) in stats.items()}


def _table_rows(cells: Sequence[GridCell], best: GridCell, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row for every combination, with the best one marked."""
    setting_names = list(cells[0].settings)
    rows = [
        [
            *(f"{cell.settings[setting]:g}" for setting in setting_names),
            str(len(cell.runs)),
            *(_format_stat(cell.metric_stats("validation")[name], len(cell.runs)) for name in names),
            "best" if cell is best else "",
        ]
        for cell in cells
    ]
    return [*setting_names, "seeds", *names, ""], rows


def _format_stat(stat: tuple[float, float], runs: int) -> str:
    return f"{stat[0]:.4g} ± {stat[1]:.2g}" if runs > 1 else f"{stat[0]:.4g}"


def _summary_lines(cells: Sequence[GridCell], best: GridCell, best_run: RunResult, out: Path) -> list[str]:
    """Lines on the best combination, whether it differs significantly from the next, and its test metrics."""
    test_summary = "  ".join(
        f"{name} {_format_stat(value, len(best.runs))}" for name, value in best.metric_stats("test").items()
    )
    lines = [
        f"Best on validation by {best_run.judged_by}: {best.name}; best of its runs: {best_run.run.name}, "
        f"which {out} opens"
    ]
    if len(cells) > 1:
        lines.append(_compare_with_next(cells, best, best_run.judged_by))
    return lines + ([f"Test, mean over {len(best.runs)} seeds: {test_summary}"] if test_summary else [])


def _compare_with_next(cells: Sequence[GridCell], best: GridCell, metric: str) -> str:
    """Whether the best two differ significantly: t-test over their seeds, 95 %."""
    next_cell = min((cell for cell in cells if cell is not best), key=lambda cell: cell.selection_loss)
    (mean, std), (next_mean, next_std) = (
        candidate.metric_stats("validation")[metric] for candidate in (best, next_cell)
    )
    seeds = min(len(best.runs), len(next_cell.runs))
    next_summary = f"{next_cell.name} ({_format_stat((next_mean, next_std), len(next_cell.runs))})"
    if seeds < 2:
        return f"Next is {next_summary}; one seed each cannot show whether the difference is chance: set grid.seeds=3"
    standard_error = math.sqrt(std**2 / len(best.runs) + next_std**2 / len(next_cell.runs))
    margin = T_QUANTILES.get(2 * seeds - 2, 2.0) * standard_error
    if abs(mean - next_mean) <= margin:
        return f"No significant difference from the next, {next_summary}, with {seeds} seeds each"
    return f"Next is {next_summary}, a significant difference with {seeds} seeds each"


def _results_table(cells: Sequence[GridCell], best: GridCell) -> Table:
    metric = best.runs[0].judged_by
    headings, rows = _table_rows(cells, best, list(dict.fromkeys([metric, "loss"])))
    table = Table(title="Validation, mean ± standard deviation over seeds")
    for heading in headings:
        table.add_column(Text(heading), justify="right")
    for cell, row in zip(cells, rows, strict=True):
        table.add_row(*map(Text, row), style="bold" if cell is best else None)
    return table


def render_markdown(recipe: FinetuneRecipe, cells: Sequence[GridCell], best: GridCell, best_run: RunResult) -> str:
    """The results as Markdown, for grid.md."""
    headings, rows = _table_rows(cells, best, list(best.metric_stats("validation")))
    lines = [
        f"# {recipe.name}: {len(cells)} combinations, {recipe.grid.seeds} seeds each",
        "",
        "Validation, mean ± standard deviation over seeds.",
        "",
        *(f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)),
        "",
        *_summary_lines(cells, best, best_run, best_run.run.parent),
        "",
    ]
    return "\n".join(lines)
