"""Task reports of a finished fine-tuning run: report.html, report.json, and a section of the model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import FinetuneRecipe
from meristem.drawing.html_page import current_timestamp, shorten_middle
from meristem.drawing.task_report import TaskReport, format_metric
from meristem.drawing.training_curves import read_metrics
from meristem.evaluation.evaluation_report import describe_model, write_report
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import Metrics, TaskEvaluation
from meristem.learning.learner import Learner
from meristem.metrics import linear_baseline

SUGGESTED_BUCKETS = 1 << 20
"""Buckets of n-grams that a report suggests; many classes get fewer."""
MAX_CARD_LABELS = 40
"""Labels listed in a model card."""


def build_task_report(
    run: RunFolder,
    recipe: FinetuneRecipe,
    learner: Learner,
    task: Task,
    samples: Mapping[str, Sequence[Sample]],
    *,
    split: str,
    evaluation: TaskEvaluation,
    notices: Sequence[str],
    sources: Sequence[str],
    commands: Sequence[str],
) -> TaskReport:
    """Collect the report of a finished run."""
    baselines = task.metrics.baselines(samples["train"], samples[split])
    return TaskReport(
        name=run.path.name,
        task=recipe.task.name,
        model=describe_model(recipe, learner),
        split=split,
        result=evaluation,
        metric=task.metric,
        split_sizes={name: len(split_samples) for name, split_samples in samples.items()},
        sources=sources,
        baselines=baselines,
        notices=[
            *notices,
            *baseline_notices(
                task.metric, evaluation.metrics, baselines, can_count=getattr(recipe.task, "ngram_buckets", None) == 0
            ),
        ],
        recipe=recipe.to_dict(),
        commands=commands,
        curves=read_metrics(run.metrics_path),
        date=current_timestamp(),
    )


def baseline_notices(
    metric: str, metrics: Mapping[str, float], baselines: Mapping[str, Metrics], *, can_count: bool = False
) -> list[str]:
    """A sentence for each baseline that the model does not beat in the main metric.

    `can_count`: the head could count n-grams and does not, which is the remedy against the linear baseline.
    """
    if metric == "loss" or metric not in metrics:
        return []
    remedies = {linear_baseline.NAME: f"; task.ngram_buckets={SUGGESTED_BUCKETS} adds n-grams to the head"}
    return [
        f"{metric} {format_metric(metrics[metric])} does not beat {name}, {format_metric(baseline[metric])}"
        f"{remedies.get(name, '') if can_count else ''}"
        for name, baseline in baselines.items()
        if metric in baseline and baseline[metric] >= metrics[metric]
    ]


def write_task_report(report: TaskReport, folder: Path) -> None:
    """Write report.html and report.json."""
    for name in ("report.html", "report.json"):
        write_report(folder / name, report)


def task_card_lines(report: TaskReport, labels: Sequence[str]) -> list[str]:
    """Section of the model card on the task: labels, metrics with intervals, and baselines."""
    evaluation = report.result
    headings = ["measure", "value", "95 % interval", *(_table_cell(name) for name in report.baselines)]
    lines = ["## Task", "", f"{report.task}{_label_list(labels)}", ""]
    lines += [
        f"On {evaluation.num_samples:,} {report.split} samples:",
        "",
        _table_row(headings),
        _table_row(["---"] * len(headings)),
    ]
    for name in report.metric_names:
        bounds = evaluation.intervals.get(name)
        interval = f"{format_metric(bounds[0])} – {format_metric(bounds[1])}" if bounds else ""
        baseline_cells = [
            format_metric(baseline[name]) if name in baseline else "" for baseline in report.baselines.values()
        ]
        lines.append(
            _table_row([_table_cell(name), format_metric(evaluation.metrics[name]), interval, *baseline_cells])
        )
    if evaluation.signature:
        lines += ["", f"Computed as `{evaluation.signature}`."]
    lines += ["", "Intervals by bootstrap. `report.html` has the confusions and the most confident mistakes.", ""]
    if report.notices:
        lines += [
            "Warnings about the data:",
            "",
            *(f"- {_table_cell(line, 300)}" for line in report.notices),
            "",
        ]
    return lines


def _label_list(labels: Sequence[str]) -> str:
    if not labels:
        return "."
    label_names = ", ".join(f"`{_table_cell(label)}`" for label in labels[:MAX_CARD_LABELS])
    return f", {len(labels)} labels: {label_names}{', …' if len(labels) > MAX_CARD_LABELS else ''}."


def _table_cell(text: str, max_chars: int = 60) -> str:
    """Text shortened and escaped for a cell of a Markdown table."""
    return shorten_middle(text, max_chars).replace("|", "\\|").replace("`", "'")


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
