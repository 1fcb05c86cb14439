"""Prediction requests: inputs checked against a task's fields and predicted in chunks; bad ones do not stop others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meristem.config.errors import MeristemError
from meristem.evaluation.task_predictions import predict
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS, Task
from meristem.interfaces.task_signature import TaskSignature
from meristem.learning.learner import Learner

TaskInput = str | Mapping[str, Any]
"""A text, or a mapping of input fields."""


def task_signatures() -> dict[str, TaskSignature]:
    """The signature of every task by name."""
    return {name: task.signature for name, task in TASKS.items()}


def parse_task_input(task: Task, task_input: TaskInput, location: str = "") -> Sample:
    """A sample without a gold label; missing, empty or unknown fields are an error that names the right ones."""
    signature, prefix = task.signature, f"{location}: " if location else ""
    if not isinstance(task_input, str | Mapping):
        raise MeristemError(f"{prefix}expected a text, or a mapping of fields; got {type(task_input).__name__}")
    if isinstance(task_input, Mapping) and list(task_input) == ["text"] and len(signature.required) == 1:
        task_input = task_input["text"]
    values = signature.values_by_name(task_input)
    unknown_fields = _fields_of_other_tasks(values.keys() - signature.field_names)
    missing_fields = signature.missing(values)
    if unknown_fields or missing_fields:
        problem = (
            f"takes no {unknown_fields[0]}"
            if unknown_fields and not missing_fields
            else f"needs {' and '.join(missing_fields)}"
        )
        raise MeristemError(f"{prefix}task {task.name} {problem}: {signature.usage}")
    try:
        return replace(task.parse_input(values), location=location)
    except MeristemError as error:
        raise MeristemError(f"{prefix}{error}") from None


def _fields_of_other_tasks(names: Collection[str]) -> list[str]:
    """Those of the names that are fields of some task, sorted: other columns of a file are nobody's field."""
    known = {name for signature in task_signatures().values() for name in signature.accepted_names} if names else set()
    return sorted(known & set(names))


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The result of one request: an output, or an error."""

    location: str = ""
    sample: Sample | None = None
    output: Any = None
    """The task's raw output; the task's `format_output` and `format_top_outputs` make it readable."""
    error: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The request, by column."""


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """One request with its location, or the reason why it could not be read."""

    task_input: TaskInput | Sample | None = None
    location: str = ""
    error: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The row it was read from, by column."""


def predict_chunks(
    learner: Learner, task: Task, chunks: Iterable[Sequence[PredictionRequest]]
) -> Iterator[list[Prediction]]:
    """Predict each chunk as one batch, in order; a bad request gets an error and does not stop the rest."""
    for chunk in chunks:
        predictions = [_parse_request(task, request) for request in chunk]
        valid_indices = [index for index, prediction in enumerate(predictions) if prediction.sample is not None]
        samples = [sample for prediction in predictions if (sample := prediction.sample) is not None]
        for index, prediction in zip(valid_indices, _predict_samples(learner, task, samples), strict=True):
            predictions[index] = replace(prediction, row=predictions[index].row)
        yield predictions


def _parse_request(task: Task, request: PredictionRequest) -> Prediction:
    if request.error or request.task_input is None:
        return Prediction(location=request.location, error=request.error, row=request.row)
    if isinstance(request.task_input, Sample):
        return Prediction(
            location=request.task_input.location, sample=request.task_input, row=request.row or request.task_input.row
        )
    row = request.task_input if isinstance(request.task_input, Mapping) else {"text": request.task_input}
    try:
        return Prediction(
            location=request.location, sample=parse_task_input(task, request.task_input, request.location), row=row
        )
    except MeristemError as error:
        return Prediction(location=request.location, error=str(error), row=row)


def _predict_samples(learner: Learner, task: Task, samples: Sequence[Sample]) -> list[Prediction]:
    """Predict all samples at once; on failure, bisect to find the samples that fail."""
    if not samples:
        return []
    try:
        outputs = predict(learner, samples, task=task).predictions
    except MeristemError as error:
        if len(samples) > 1:
            middle = len(samples) // 2
            return [
                *_predict_samples(learner, task, samples[:middle]),
                *_predict_samples(learner, task, samples[middle:]),
            ]
        (sample,) = samples
        message = str(error)
        prefix = f"{sample.location}: " if sample.location and sample.location not in message else ""
        return [Prediction(location=sample.location, sample=sample, error=prefix + message)]
    return [
        Prediction(location=sample.location, sample=sample, output=output)
        for output, sample in zip(outputs, samples, strict=True)
    ]
