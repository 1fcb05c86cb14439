"""Evaluation reports on labelled samples: one dict, and an HTML or JSON file on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk
from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe
from meristem.drawing.html_page import current_timestamp
from meristem.drawing.task_report import TaskReport, to_json
from meristem.drawing.task_report_html import render_task_report
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import Metrics, TaskEvaluation
from meristem.learning.learner import Learner

REPORT_RENDERERS = {".html": render_task_report, ".json": to_json}
"""Report renderers by file extension."""


def build_evaluation_report(
    loaded_run: LoadedRun,
    task: Task,
    evaluation: TaskEvaluation,
    *,
    split: str,
    data: str,
    notices: Sequence[str],
    losses: Metrics | None = None,
    baselines: Mapping[str, Metrics] | None = None,
    prompt_settings: Mapping[str, Any] | None = None,
    report: str | Path | None = None,
) -> dict[str, Any]:
    """Metrics with confidence intervals; `prompt_settings` are those of an evaluation by prompting."""
    if report is not None:
        write_report(
            Path(report),
            TaskReport(
                name=loaded_run.run.path.name,
                task=task.name if prompt_settings is None else f"{task.name}, prompted without training",
                model=describe_model(loaded_run.recipe, loaded_run.learner),
                split=split,
                result=evaluation,
                metric=task.metric,
                split_sizes={split: evaluation.num_samples},
                sources=[data],
                baselines=baselines or {},
                notices=notices,
                recipe=prompt_settings or loaded_run.recipe.to_dict(),
                date=current_timestamp(),
            ),
        )
    return {
        "metrics": {**(losses or {}), **evaluation.metrics},
        "intervals": {name: list(interval) for name, interval in evaluation.intervals.items()},
        "run": str(loaded_run.run.path),
        "step": loaded_run.step,
        "task": task.name,
        "data": data,
        "samples": {split: evaluation.num_samples},
        "signature": evaluation.signature,
        "notices": list(notices),
    }


def report_renderer(path: Path) -> Any:
    """The renderer for a report file; call it before the evaluation, so that a bad file name fails early."""
    if path.suffix not in REPORT_RENDERERS or not path.parent.is_dir():
        problem = (
            f"folder {path.parent} does not exist"
            if path.suffix in REPORT_RENDERERS
            else "expected a file name that ends in .html or .json"
        )
        raise MeristemError(f"--report {path}: {problem}")
    return REPORT_RENDERERS[path.suffix]


def write_report(path: Path, report: TaskReport) -> None:
    """Write the HTML or JSON report."""
    disk.atomic_write(path, [report_renderer(path)(report).encode("utf-8", "replace")])


def describe_model(recipe: Recipe, learner: Learner) -> str:
    """A model in one line: family, size, and the run it was initialised from."""
    parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    init_path = recipe.start.path
    description = f"{recipe.model.family}, {parameters / 1e6:.1f} M parameters"
    return f"{description}, initialised from {init_path}" if init_path is not None else f"{description}, from scratch"
