"""Prediction requests: inputs checked against a task's fields and predicted in chunks; bad ones do not stop others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meristem.config.errors import MeristemError
from meristem.evaluation.task_predictions import predict
from meristem.interfaces.task import Sample, Task
from meristem.learning.learner import Learner

TaskInput = str | Mapping[str, Any]
"""A text, or a mapping of input fields."""


@dataclass(frozen=True, kw_only=True)
class InputFields:
    """The input fields of a sample type."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    cli_usage: str
    """How the fields are given on the command line."""

    @property
    def all(self) -> tuple[str, ...]:
        """All fields, required or optional."""
        return self.required + self.optional


INPUT_FIELDS = {
    "text": InputFields(required=("text",), cli_usage='"…"'),
    "pair": InputFields(required=("text", "text_b"), cli_usage='"…" --text-b "…"'),
    "words": InputFields(required=("text",), optional=("words", "offsets"), cli_usage='"…"'),
    "command": InputFields(required=("text",), optional=("words", "offsets"), cli_usage='"…"'),
    "span": InputFields(required=("question", "passage"), optional=("id",), cli_usage='--question "…" --passage "…"'),
    "choice": InputFields(
        required=("text", "choices"), optional=("question",), cli_usage='"…" --choices "…" --choices "…"'
    ),
    "turns": InputFields(required=("turns",), cli_usage='"…"'),
    "source_target": InputFields(required=("source",), cli_usage='"…"'),
    "picture": InputFields(required=("picture",), cli_usage="--image FILE"),
}
"""By sample type."""
KNOWN_FIELDS = frozenset(part for parts in INPUT_FIELDS.values() for part in parts.all) - {"id", "offsets"}
FIELD_ALIASES = {"context": "passage", "text_pair": "text_b", "image": "picture"}
"""Field names of other libraries."""


def input_fields(task: Task) -> InputFields:
    """The input fields of a task."""
    return INPUT_FIELDS[task.sample_type]


def parse_task_input(task: Task, task_input: TaskInput, location: str = "") -> Sample:
    """A sample without a gold label; missing, empty or unknown fields are an error that names the right ones."""
    fields, prefix = input_fields(task), f"{location}: " if location else ""
    if not isinstance(task_input, str | Mapping):
        raise MeristemError(f"{prefix}expected a text, or a mapping of fields; got {type(task_input).__name__}")
    values = _values_by_field(task_input, fields)
    unknown_fields = sorted(field for field in values if field in KNOWN_FIELDS and field not in fields.all)
    missing_fields = [field for field in fields.required if _is_empty(values.get(field))]
    if "text" in missing_fields and values.get("words"):
        missing_fields.remove("text")
    if unknown_fields or missing_fields:
        problem = (
            f"takes no {unknown_fields[0]}"
            if unknown_fields and not missing_fields
            else f"needs {' and '.join(missing_fields)}"
        )
        raise MeristemError(f"{prefix}task {task.name} {problem}: {_usage_example(fields)}")
    try:
        text = values[fields.required[0]]
        sample = task.parse_input(text if isinstance(task_input, str) and isinstance(text, str) else values)
    except MeristemError as error:
        raise MeristemError(f"{prefix}{error}") from None
    return replace(sample, location=location)


def _values_by_field(task_input: TaskInput, fields: InputFields) -> dict[str, Any]:
    """Values by field name; a text alone is the first field, and empty optional fields are left out."""
    if isinstance(task_input, str):
        return {fields.required[0]: task_input}
    values = {FIELD_ALIASES.get(name, name): value for name, value in task_input.items() if value is not None}
    if len(fields.required) == 1 and "text" in values and fields.required[0] not in values:
        values[fields.required[0]] = values.pop("text")
    return {name: value for name, value in values.items() if name in KNOWN_FIELDS or name in fields.all}


def _is_empty(value: Any) -> bool:
    """Whether a value is empty."""
    return value is None or (isinstance(value, str) and not value.strip()) or (not isinstance(value, str) and not value)


def _usage_example(fields: InputFields) -> str:
    json_fields = ", ".join(f'"{field}": {"[…]" if field in ("choices",) else "…"}' for field in fields.required)
    return f"meristem predict RUN {fields.cli_usage}, or {{{json_fields}}} from Python and in JSON lines"


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
