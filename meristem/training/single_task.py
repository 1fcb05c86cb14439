"""Single-task baselines of a mixed run: every source trained alone for the steps it had in the mix, and compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from meristem.checkpoint import disk
from meristem.checkpoint.run import Run
from meristem.drawing.single_task import ComparisonReport, TaskComparison
from meristem.errors import RecipeError
from meristem.learning.assemble import objectives_of
from meristem.learning.mix import Mix
from meristem.learning.team import ALONE, Team, is_rank_zero, several
from meristem.recipe import Recipe, Source
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import card
from meristem.training.ending import Ended
from meristem.training.running import run_recipe
from meristem.training.settings import BUDGETS
from meristem.training.shards import Shards, gather

FOLDER = "single-task"
SECTION = "Each task in the mix and trained alone"


def refuse_without_mix(recipe: Recipe) -> None:
    """Baselines compare the tasks of a mix; a recipe with one task has nothing to compare."""
    if recipe.train.single_task_baselines and len(recipe.mix) < 2:
        raise RecipeError(
            "train.single_task_baselines: it compares the tasks of a mix with training each alone, and this recipe "
            "has one task; leave it out"
        )


def train_single_tasks(recipe: Recipe, mixed: Ended, console: Console) -> ComparisonReport | None:
    """Train what is not trained yet, write the report beside the mixed run, and show it; none with processes."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    if several():
        if is_rank_zero():
            say("Single-task baselines are trained by one process: give the same command again without --processes")
        return None
    steps = steps_by_source(recipe, mixed.step)
    say(f"Single-task baselines: each of {len(steps)} tasks alone, {mixed.step:,} steps in all, as long as the mix")
    alone: dict[str, Ended] = {}
    for number, source in enumerate(recipe.mix, 1):
        if source.name not in steps:
            continue
        out = mixed.run / FOLDER / re.sub(r"[^\w.+-]", "-", source.name)
        say(f"Single-task baseline {number} of {len(steps)}: {source.name}, {steps[source.name]:,} steps in {out}")
        alone[source.name] = run_recipe(
            single_task_recipe(recipe, source, steps[source.name]),
            out,
            gather=partial(_gather, mixed=Run(mixed.run)),
            fresh=False,
            console=console,
            initial=recipe,
        )
    report = compare(recipe, mixed, alone, steps)
    _write(report, mixed.run)
    console.print(report.table())
    say(f"{report.summary} {mixed.run / 'report.html'} has the table")
    return report


def steps_by_source(recipe: Recipe, steps: int) -> Counter[str]:
    """How many of a mixed run's steps each source had."""
    mix = Mix({source.name: source.weight for source in recipe.mix}, recipe.train.seed)
    return Counter(mix(step)[0] for step in range(steps))


def single_task_recipe(recipe: Recipe, source: Source, steps: int) -> Recipe:
    """The recipe with one source and a budget of its own, everything else unchanged."""
    budget: dict[str, int | bool | None] = {**dict.fromkeys(BUDGETS), "steps": steps, "single_task_baselines": False}
    train = recipe.train.model_copy(update=budget)
    return replace(recipe, name=f"{recipe.name} {source.name}", mix=(source,), train=train)


def _gather(recipe: Recipe, before: Run | None, console: Console, team: Team = ALONE, *, mixed: Run) -> Shards:
    """The tokenizer and the shards of the mixed run."""
    return gather(recipe, before or mixed, console, team)


def compare(recipe: Recipe, mixed: Ended, alone: Mapping[str, Ended], steps: Mapping[str, int]) -> ComparisonReport:
    """Every loss term of every source in both runs, on the test split where all have one, else on validation."""
    split = "test" if mixed.test and all(one.test for one in alone.values()) else "validation"
    together = mixed.test if split == "test" else mixed.metrics
    objectives = objectives_of(recipe, Tokenizer.load(Run(mixed.run).tokenizer_path))
    rows = max(1, recipe.train.batch_tokens // recipe.model.length)
    tasks: list[TaskComparison] = []
    for name, run in alone.items():
        apart = run.test if split == "test" else run.metrics
        inside = {key.removeprefix(f"{name}."): value for key, value in together.items() if key.startswith(f"{name}.")}
        for term, weight in objectives[name].weights.items():
            # a single term's loss is shown as the source's, times its weight
            losses = [found.get(term, found.get("loss", float("nan")) / weight) for found in (inside, apart)]
            accuracy = next((key for key in (f"{term}.top1", f"{term}.accuracy") if key in apart), "")
            tasks.append(
                TaskComparison(
                    source=name,
                    term=term,
                    steps=steps[name],
                    samples=steps[name] * rows,
                    loss_mixed=losses[0],
                    loss_alone=losses[1],
                    accuracy=accuracy,
                    accuracy_mixed=inside.get(accuracy),
                    accuracy_alone=apart.get(accuracy),
                )
            )
    model = f"{recipe.model.family}, {recipe.model.layers} layers × {recipe.model.width}"
    return ComparisonReport(run=recipe.name, model=model, split=split, seed=recipe.train.seed, tasks=tasks)


def _write(report: ComparisonReport, folder: Path) -> None:
    """report.html and report.json, and a section of the model card."""
    disk.replace(folder / "report.html", [report.page().encode()])
    disk.replace(folder / "report.json", [report.plain().encode()])
    readme = folder / "README.md"
    text = card.with_section(readme.read_text(encoding="utf-8"), SECTION, report.card(), before="Numbers")
    disk.replace(readme, [text.encode()])
