"""Evaluation of a task run on labelled samples: its held-out split, or another file in the same format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.validation import build_settings
from meristem.evaluation.evaluation_report import build_evaluation_report, report_renderer
from meristem.evaluation.run_tasks import run_tasks, select_task
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.labelled.columns import MissingColumnError
from meristem.labelled.load import load_samples, load_splits
from meristem.labelled.settings import DataSettings


def evaluate_task(
    loaded_run: LoadedRun,
    *,
    data: str | None = None,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    task: str | None = None,
    report: str | Path | None = None,
) -> dict[str, Any]:
    """Metrics with confidence intervals, and notices about the samples, in one dict.

    `data` is read with the columns of the run's own data, unless `columns` says otherwise (label → column name).
    """
    if report is not None:
        report_renderer(Path(report))
    selected_task = select_task(run_tasks(loaded_run), loaded_run, task)
    notices: list[str] = []
    samples, split, data_name = load_evaluation_samples(loaded_run, selected_task, data, columns or {}, notices)
    samples = samples[:limit]
    task_predictions = predict(loaded_run.learner, samples, task=selected_task)
    return build_evaluation_report(
        loaded_run,
        selected_task,
        evaluate_predictions(selected_task, task_predictions.predictions, samples),
        split=split,
        data=data_name,
        notices=[*notices, *selected_task.metrics.unseen_labels(samples)],
        losses=task_predictions.losses,
        report=report,
    )


def load_evaluation_samples(
    loaded_run: LoadedRun, task: Task, data: str | None, columns: Mapping[str, Any], notices: list[str]
) -> tuple[list[Sample], str, str]:
    """Samples, their split name, and where they are from; appends to `notices`."""
    settings, fields = loaded_run.recipe.data_settings, task.signature.column_fields
    if data is not None:
        column_settings = build_settings(DataSettings, {**settings.model_dump(), **columns}, "columns")
        try:
            return load_samples(data, column_settings, task.sample_type, fields, notices=notices), "data", data
        except MissingColumnError as error:
            raise error.for_option() from None
    if columns:
        raise MeristemError("--columns: names columns of a file; give it with --data FILE")
    if loaded_run.recipe.tuned_task is None:
        raise MeristemError(f"{loaded_run.run.path} has no labelled data of its own: give a file with --data FILE")
    try:
        dataset_splits = load_splits(settings, task.sample_type, fields)
    except (MeristemError, OSError) as error:
        raise MeristemError(
            f"the samples {loaded_run.run.path} held out cannot be read ({error}). Give a file with --data FILE"
        ) from None
    split = next((name for name in ("test", "validation") if dataset_splits.samples.get(name)), None)
    if split is None:
        raise MeristemError(
            f"{loaded_run.run.path} has no held-out samples (data.held_out is 0). Give a file with --data FILE"
        )
    notices += dataset_splits.notices
    return dataset_splits.samples[split], split, f"the run's own {split} samples"
