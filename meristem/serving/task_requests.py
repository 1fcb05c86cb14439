"""Routes of tasks and their request bodies, made from the signatures of the tasks that answer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, create_model, model_validator

from meristem.evaluation.abstention import ANSWER_FIELDS
from meristem.evaluation.prediction_requests import task_signatures
from meristem.interfaces.task_signature import InputField, Route, TaskSignature
from meristem.serving.model_registry import ServedRun
from meristem.serving.request_models import (
    MAX_TEXTS,
    Base64Image,
    ModelRequest,
    NonEmptyText,
    Texts,
    example_config,
)

FIELD_TYPES: Mapping[str, Any] = {
    "text": NonEmptyText,
    "texts": Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_TEXTS)],
    "words": Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_TEXTS)],
    "choices": Annotated[list[NonEmptyText], Field(min_length=2, max_length=MAX_TEXTS)],
    "turns": Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_TEXTS)],
    "image": Base64Image,
}
"""Kind of field → its type in a request."""
EXAMPLE_IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"


class TaskRequest(ModelRequest):
    """Fields of every task request."""

    top: int | None = Field(None, ge=1, le=100)
    """Return this many most likely predictions instead of the best one."""


class AbstainingTaskRequest(TaskRequest):
    """Fields of a request to a task whose answers have a probability of their own."""

    abstain_below: float | None = Field(None, gt=0, le=1)
    """Answer `abstain` where the probability is lower; not together with top."""

    @model_validator(mode="after")
    def _check_single_answer(self) -> Self:
        if self.abstain_below is not None and self.top is not None:
            raise ValueError("abstain_below: cannot be combined with top, which gives several answers")
        return self


@dataclass(frozen=True)
class TaskRoute:
    """A route, and the signatures of the tasks that answer it by name."""

    route: Route
    signatures: dict[str, TaskSignature] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, InputField]:
        """The fields of its requests by name: those of all its tasks."""
        served = [item for signature in self.signatures.values() for item in signature.served]
        return {item.request_name: item for item in reversed(served)}

    def is_required(self, name: str) -> bool:
        """Whether all its tasks need a field."""
        return all(
            any(item.request_name == name and item.required for item in signature.served)
            for signature in self.signatures.values()
        )

    @cached_property
    def batch_field(self) -> str | None:
        """The text of which a request may have several: the only field that is always needed."""
        required = [name for name in self.fields if self.is_required(name)]
        return required[0] if len(required) == 1 and self.fields[required[0]].kind == "text" else None

    @cached_property
    def request_model(self) -> type[TaskRequest]:
        """The request body, with an example for the OpenAPI schema."""
        definitions: dict[str, Any] = {}
        example: dict[str, Any] = {}
        for name, item in self.fields.items():
            field_type = Texts if name == self.batch_field else FIELD_TYPES[item.kind]
            if self.is_required(name):
                definitions[name] = (field_type, Field(description=item.help))
                example[name] = EXAMPLE_IMAGE if item.kind == "image" else item.example
            else:
                definitions[name] = (field_type | None, Field(None, description=item.help))
        can_abstain = any(signature.output in ANSWER_FIELDS for signature in self.signatures.values())
        base = AbstainingTaskRequest if can_abstain else TaskRequest
        model = create_model(f"{self.route.name.title()}Request", __base__=base, **definitions)
        model.__doc__ = self.route.summary
        model.model_config["json_schema_extra"] = example_config(**example)["json_schema_extra"]
        model.model_rebuild(force=True)
        return model

    def inputs(self, body: TaskRequest) -> dict[str, Any] | list[dict[str, Any]]:
        """The fields of one sample, or of one sample per text."""
        values = body.model_dump(include=set(self.fields), exclude_none=True)
        name = self.batch_field
        if name is None or not isinstance(values[name], list):
            return values
        return [{**values, name: text} for text in values[name]]


def task_routes() -> dict[str, TaskRoute]:
    """The routes of all tasks by name."""
    routes: dict[str, TaskRoute] = {}
    for name, signature in task_signatures().items():
        route = routes.setdefault(signature.route.name, TaskRoute(signature.route))
        route.signatures[name] = signature
    return routes


def run_forms(run: ServedRun) -> dict[str, dict[str, Any]]:
    """Route → the page's form for it: the fields and the kind of output of the task that answers it.

    A captioning model without a task answers the route of the caption task.
    """
    signatures = {task.signature.route.name: task.signature for task in run.tasks.values()}
    if "caption" in run.routes:
        signatures.setdefault("caption", task_signatures()["caption"])
    return {route: _form(signature) for route, signature in signatures.items()}


def _form(signature: TaskSignature) -> dict[str, Any]:
    fields = [
        {
            "name": item.request_name,
            "kind": item.kind,
            "help": item.help,
            "required": item.required,
            "example": item.example,
        }
        for item in signature.served
    ]
    return {"summary": signature.route.summary, "output": signature.output, "fields": fields}
