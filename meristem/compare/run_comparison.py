"""Running a comparison: cells that have not finished, several at once; then measures and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import yaml
from rich.console import Console

from meristem.checkpoint import disk
from meristem.compare.build_report import build_report
from meristem.compare.cell_jobs import CellJob, JobProgress, job_pool, run_jobs
from meristem.compare.cells import Cell, pretrain_cells, task_cells, trial_cells
from meristem.compare.comparison_report import ComparisonReport
from meristem.compare.comparison_settings import ComparisonSettings
from meristem.compare.item_scores import has_item_scores, write_item_scores
from meristem.compare.measures import has_pair_scores, read_run, score_pairs
from meristem.compare.report_page import Language
from meristem.compare.shared_precision import with_shared_precision
from meristem.compare.train_cell import (
    check_task_data,
    is_finished,
    refuse_changed_cell,
    resolve_pretrain_cell,
    resolve_task_cell,
    run_path,
    train_cell,
)
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, Recipe
from meristem.corpus.corpus_sources import resolve_sources

COMPARISON_FILE = "comparison.yaml"


def run_comparison(
    comparison: ComparisonSettings, out: Path, console: Console, *, parallel: int = 1, language: Language = "en"
) -> ComparisonReport:
    """Run all cells that have not finished, measure them, and write the report; the same call resumes.

    With `parallel` above one, worker processes train several cells at once; the results are the same. The page has
    English and Chinese; `language` says in which it opens.
    """
    comparison = with_shared_precision(comparison, _check(comparison, out), out / COMPARISON_FILE)
    out.mkdir(parents=True, exist_ok=True)
    described = yaml.safe_dump(comparison.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    disk.atomic_write(out / COMPARISON_FILE, [described.encode()])
    trials = list(trial_cells(comparison))
    tuned = list(task_cells(comparison))
    progress = JobProgress(console=console, planned=_planned(comparison, trials, tuned), parallel=parallel)
    with job_pool(parallel) as pool:
        _run_cells(trials, comparison, out, pool, progress)
        learning_rates = best_learning_rates(trials, out)
        pretrained = list(pretrain_cells(comparison, learning_rates))
        _run_cells(pretrained, comparison, out, pool, progress)
        if progress.errors and not any(is_finished(out, cell.name) for cell in pretrained):
            name, error = next(iter(progress.errors.items()))
            raise MeristemError(f"no run could be trained; {name}: {error}")
        can_start = [cell for cell in tuned if cell.start is None or is_finished(out, cell.start)]
        progress.skip("task", len(tuned) - len(can_start))
        _run_cells(can_start, comparison, out, pool, progress)
        run_jobs(list(_score_jobs(comparison, out, pretrained, tuned, progress)), pool, progress)
    report = build_report(comparison, out, pretrained, tuned, learning_rates, progress.errors)
    report.write(out, language)
    return report


def best_learning_rates(trials: Sequence[Cell], out: Path) -> dict[str, float]:
    """Arm → multiple of its learning rate with the lowest validation loss; without trials empty."""
    losses: dict[str, dict[float, float]] = {}
    for cell in trials:
        measures = read_run(run_path(out, cell.name))
        if measures is not None and "loss" in measures.values:
            losses.setdefault(cell.arm, {})[cell.learning_rate] = measures.values["loss"]
    return {arm: min(by_rate, key=lambda rate: by_rate[rate]) for arm, by_rate in losses.items()}


def _check(comparison: ComparisonSettings, out: Path) -> list[Recipe]:
    """Refuse wrong recipes, settings, missing files and changed cells before anything is trained; returns the recipes
    that train a model of their own, with seed 0."""
    pretrained, tuned = [*trial_cells(comparison), *pretrain_cells(comparison, {})], list(task_cells(comparison))
    recipes = [resolve_pretrain_cell(cell, comparison) for cell in pretrained if cell.seed == 0]
    for recipe in recipes:
        for source in recipe.sources() if isinstance(recipe, PretrainRecipe) else ():
            resolve_sources(source.corpus)
    for path in comparison.pairs:
        if not Path(path).exists():
            raise MeristemError(f"{path}: no such file or folder")
    for task in comparison.tasks:
        check_task_data(task)
    for cell in [*pretrained, *tuned]:
        if not (cell.kind == "pretrain" and comparison.learning_rates):  # its learning rate is known after the trials
            refuse_changed_cell(cell, comparison, out)
    from_scratch = [cell for cell in tuned if cell.start is None and cell.seed == 0]
    return [*recipes, *(resolve_task_cell(cell, comparison, out) for cell in from_scratch)]


def _planned(comparison: ComparisonSettings, trials: Sequence[Cell], tuned: Sequence[Cell]) -> dict[str, int]:
    """Kind of job → number of jobs, finished ones included."""
    pretrained = len(list(pretrain_cells(comparison, {})))
    scores = pretrained * len(comparison.pairs)
    return dict(Counter(trial=len(trials), pretrain=pretrained, task=len(tuned), pairs=scores, items=len(tuned)))


def _run_cells(
    cells: Sequence[Cell],
    comparison: ComparisonSettings,
    out: Path,
    pool: ProcessPoolExecutor | None,
    progress: JobProgress,
) -> None:
    """Train the cells that have not finished."""
    unfinished = [cell for cell in cells if not is_finished(out, cell.name)]
    for cell in cells:
        if cell not in unfinished:
            progress.skip(cell.kind)
    jobs = [
        CellJob(name=cell.name, kind=cell.kind, function=train_cell, arguments=(cell, comparison, out))
        for cell in unfinished
    ]
    run_jobs(jobs, pool, progress)


def _score_jobs(
    comparison: ComparisonSettings,
    out: Path,
    pretrained: Sequence[Cell],
    tuned: Sequence[Cell],
    progress: JobProgress,
) -> Iterator[CellJob]:
    """Minimal pairs and single test samples that have not been scored."""
    for cell in pretrained:
        run = run_path(out, cell.name)
        for pairs in comparison.pairs:
            if is_finished(out, cell.name) and not has_pair_scores(run, pairs):
                yield CellJob(
                    name=f"{cell.name}, minimal pairs", kind="pairs", function=score_pairs, arguments=(run, pairs)
                )
            else:
                progress.skip("pairs")
    for cell in tuned:
        run = run_path(out, cell.name)
        if is_finished(out, cell.name) and not has_item_scores(run):
            yield CellJob(
                name=f"{cell.name}, single samples", kind="items", function=write_item_scores, arguments=(run,)
            )
        else:
            progress.skip("items")
