"""Formatted predictions of a task for samples, or for the rows of a table with the columns of the training data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meristem.config.errors import MeristemError
from meristem.evaluation.task_predictions import predict
from meristem.in_memory_data import TableLike, as_file
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.labelled.load import stream_samples
from meristem.labelled.settings import DataSettings
from meristem.learning.learner import Learner
from meristem.utils.result_tables import ResultList


def predict_samples(learner: Learner, task: Task, samples: Sequence[Sample], *, top: int | None) -> ResultList[Any]:
    """One output per sample; with `top` a list of the most likely ones each."""
    predictions = predict(learner, samples, task=task).predictions
    return ResultList(
        task.format_output(prediction, sample) if top is None else task.format_top_outputs(prediction, sample, top)
        for prediction, sample in zip(predictions, samples, strict=True)
    )


def predict_table(
    learner: Learner, task: Task, table: TableLike, data: DataSettings, *, top: int | None
) -> ResultList[Any]:
    """One output per row; a row that is no sample of the task is an error."""
    with as_file(table) as path:
        rows = list(stream_samples(str(path), data, task.sample_type, task.signature.column_fields))
    for row in rows:
        if isinstance(row, MeristemError):
            raise row
    return predict_samples(learner, task, [row for row in rows if isinstance(row, Sample)], top=top)
