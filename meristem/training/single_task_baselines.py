"""Single-task baselines of a multi-task run: each source trained alone for the steps it had in the mix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import RecipeError
from meristem.config.recipe import PretrainRecipe
from meristem.config.recipe_parts import TrainingSource
from meristem.dataset.mixture import SourceMixture
from meristem.distributed.initialization import is_distributed, is_rank_zero
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.drawing.single_task_comparison import SingleTaskComparison, TaskComparison
from meristem.learning.build import build_objectives
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.data.pretraining_data import PretrainingData, load_pretraining_data
from meristem.training.report import model_card
from meristem.training.run_result import RunResult
from meristem.training.settings import BUDGETS
from meristem.training.trainer import run_recipe

BASELINES_FOLDER = "single-task"
CARD_SECTION = "Each task in the mix and trained alone"


def refuse_without_mix(recipe: PretrainRecipe) -> None:
    """Raise if baselines are requested for a recipe with a single task, where there is nothing to compare."""
    if recipe.train.single_task_baselines and len(recipe.mix) < 2:
        raise RecipeError(
            "train.single_task_baselines: it compares the tasks of a mix with training each alone, and this recipe "
            "has one task; leave it out"
        )


def train_single_tasks(
    recipe: PretrainRecipe, mixed_result: RunResult, console: Console
) -> SingleTaskComparison | None:
    """Train the unfinished baselines, write the comparison into the mixed run and print it; None if distributed."""
    log = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    if is_distributed():
        if is_rank_zero():
            log("Single-task baselines are trained by one process: run the same command again without --processes")
        return None
    steps = steps_by_source(recipe, mixed_result.step)
    log(
        f"Single-task baselines: {len(steps)} tasks, each trained alone; {mixed_result.step:,} steps in total, "
        "as many as the mix"
    )
    single_results: dict[str, RunResult] = {}
    for number, source in enumerate(recipe.mix, 1):
        if source.name not in steps:
            continue
        out = mixed_result.run / BASELINES_FOLDER / re.sub(r"[^\w.+-]", "-", source.name)
        log(f"Single-task baseline {number} of {len(steps)}: {source.name}, {steps[source.name]:,} steps in {out}")
        single_results[source.name] = run_recipe(
            single_task_recipe(recipe, source, steps[source.name]),
            out,
            load_data=partial(_load_mixed_data, mixed_run=RunFolder(mixed_result.run)),
            fresh=False,
            console=console,
            initial=recipe,
        )
    report = compare_with_mix(recipe, mixed_result, single_results, steps)
    _write_report(report, mixed_result.run)
    console.print(report.to_table())
    log(f"{report.summary} {mixed_result.run / 'report.html'} has the table")
    return report


def steps_by_source(recipe: PretrainRecipe, steps: int) -> Counter[str]:
    """Number of steps that each source had in the first `steps` steps of the mixed run."""
    mixture = SourceMixture(recipe.source_weights, recipe.train.seed)
    return Counter(mixture(step)[0] for step in range(steps))


def single_task_recipe(recipe: PretrainRecipe, source: TrainingSource, steps: int) -> PretrainRecipe:
    """The recipe with one source and its own step budget, everything else unchanged."""
    budget: dict[str, int | bool | None] = {**dict.fromkeys(BUDGETS), "steps": steps, "single_task_baselines": False}
    train = recipe.train.model_copy(update=budget)
    return replace(recipe, name=f"{recipe.name} {source.name}", mix=(source,), train=train)


def _load_mixed_data(
    recipe: PretrainRecipe,
    existing_run: RunFolder | None,
    console: Console,
    distributed: DistributedContext = SINGLE_PROCESS,
    *,
    mixed_run: RunFolder,
) -> PretrainingData:
    """Pretraining data with the tokenizer and shards of the mixed run."""
    return load_pretraining_data(recipe, existing_run or mixed_run, console, distributed)


def compare_with_mix(
    recipe: PretrainRecipe, mixed_result: RunResult, single_results: Mapping[str, RunResult], steps: Mapping[str, int]
) -> SingleTaskComparison:
    """Compare every loss term of every source in both runs, on the test split if all have one, else on validation."""
    split = "test" if mixed_result.test and all(result.test for result in single_results.values()) else "validation"
    mixed_metrics = mixed_result.test if split == "test" else mixed_result.metrics
    objectives = build_objectives(recipe, Tokenizer.load(RunFolder(mixed_result.run).tokenizer_path))
    rows = max(1, recipe.train.batch_tokens // recipe.model.max_length)
    tasks: list[TaskComparison] = []
    for name, single_result in single_results.items():
        single_metrics = single_result.test if split == "test" else single_result.metrics
        source_metrics = {
            key.removeprefix(f"{name}."): value for key, value in mixed_metrics.items() if key.startswith(f"{name}.")
        }
        for term, weight in objectives[name].loss_weights.items():
            # a source with a single loss term reports only `loss`, which is that term times its weight
            losses = [
                metrics.get(term, metrics.get("loss", float("nan")) / weight)
                for metrics in (source_metrics, single_metrics)
            ]
            accuracy = next((key for key in (f"{term}.top1", f"{term}.accuracy") if key in single_metrics), "")
            tasks.append(
                TaskComparison(
                    source=name,
                    term=term,
                    steps=steps[name],
                    samples=steps[name] * rows,
                    loss_mixed=losses[0],
                    loss_alone=losses[1],
                    accuracy=accuracy,
                    accuracy_mixed=source_metrics.get(accuracy),
                    accuracy_alone=single_metrics.get(accuracy),
                )
            )
    model = f"{recipe.model.family}, {recipe.model.layers} layers × {recipe.model.hidden_size}"
    return SingleTaskComparison(run=recipe.name, model=model, split=split, seed=recipe.train.seed, tasks=tasks)


def _write_report(report: SingleTaskComparison, folder: Path) -> None:
    """Write report.html and report.json, and add a section to the model card."""
    disk.atomic_write(folder / "report.html", [report.to_html().encode()])
    disk.atomic_write(folder / "report.json", [report.to_json().encode()])
    readme = folder / "README.md"
    text = model_card.insert_section(
        readme.read_text(encoding="utf-8"), CARD_SECTION, report.markdown_lines(), before="Numbers"
    )
    disk.atomic_write(readme, [text.encode()])
