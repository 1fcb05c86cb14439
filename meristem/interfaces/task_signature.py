"""Task signatures: the input fields of a task, its output and its HTTP route, declared once.

Command line, HTTP routes, the page's forms, example commands and docs/tasks.md follow from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from meristem.config.errors import MeristemError
from meristem.data.images import is_builtin_image

FieldKind = Literal["text", "words", "texts", "choices", "turns", "image"]
"""A text; its words; several texts; the answers to choose from; the turns of a conversation; an image file."""
OutputKind = Literal["label", "labels", "number", "tags", "intent", "span", "choice", "text", "layers"]
OUTPUT_FIELDS: dict[OutputKind, tuple[str, ...]] = {
    "label": ("label", "score"),
    "labels": ("label", "score"),
    "number": ("label", "score"),
    "tags": ("entity_group", "score", "word", "start", "end"),
    "intent": ("intent", "score", "slots"),
    "span": ("answer", "score", "start", "end"),
    "choice": ("label", "choice", "score"),
    "text": ("generated_text",),
    "layers": ("layer", "label", "score"),
}
"""Kind of output → its fields, named as in transformers' pipelines; a text may have a name of its own."""
LIST_KINDS = ("words", "texts", "choices", "turns")


@dataclass(frozen=True, kw_only=True)
class InputField:
    """One input of a task."""

    name: str
    """Its name in `Sample.inputs`."""
    kind: FieldKind = "text"
    help: str
    """One line about it, for the HTTP schema, the page and the docs."""
    required: bool = True
    public_name: str = ""
    """Its name in requests and on the command line, if not `name`."""
    aliases: tuple[str, ...] = ()
    """Its names in other libraries."""
    column: str = ""
    """The column it is read from in files, for a field that the task's sample type does not read."""
    served: bool = True
    """Whether HTTP requests and the page have it."""
    example: Any = None
    """A value to start from, on the page and in the HTTP schema."""

    @property
    def is_list(self) -> bool:
        """Whether its value is a list of texts."""
        return self.kind in LIST_KINDS

    @property
    def request_name(self) -> str:
        """Its name in HTTP requests."""
        return self.public_name or self.name

    @property
    def option(self) -> str:
        """Its option on the command line; empty for the text that needs none."""
        is_positional = self.request_name == "text" or self.kind == "turns"
        return "" if is_positional else f"--{self.request_name.replace('_', '-')}"

    @property
    def usage(self) -> str:
        """How it is given on the command line."""
        value = "FILE" if self.kind == "image" else '"…"'
        return " ".join([f"{self.option} {value}".strip()] * (2 if self.kind == "choices" else 1))

    def arguments(self, value: Any) -> list[str]:
        """The command-line arguments that give a value; of a conversation its last turn."""
        values = value if self.is_list else [value]
        quoted = [shlex.quote(str(item)) for item in (values[-1:] if self.kind == "turns" else values)]
        return [f"{self.option} {item}".strip() for item in quoted]

    def parse(self, value: Any) -> Any:
        """A value of its type, lists as tuples; TypeError if it is none."""
        if self.kind == "turns" and isinstance(value, str):
            value = (value,)
        if self.is_list:
            if not isinstance(value, list | tuple) or (self.kind != "choices" and not value):
                raise TypeError(self.name)
            if self.kind == "turns" and not all(isinstance(item, str) for item in value):
                raise TypeError(self.name)
            return tuple(map(str, value))
        if not isinstance(value, str | Path if self.kind == "image" else str):
            raise TypeError(self.name)
        return str(value)


@dataclass(frozen=True, kw_only=True)
class Route:
    """An HTTP route: `POST /<name>`; several tasks may share one."""

    name: str
    summary: str
    """One line for the HTTP schema and the docs."""


@dataclass(frozen=True, kw_only=True)
class TaskSignature:
    """The inputs and the output of a task, and the route that serves it."""

    takes: str
    """Its inputs in words, for error messages: "a text", "two texts"."""
    inputs: tuple[InputField, ...]
    """Required fields first comes the one that a text alone is; optional ones may stand between them."""
    output: OutputKind
    output_key: str = ""
    """The key of a generated text, if not `generated_text`."""
    export_head: str | None = None
    """The head of transformers' classes that its head is exported as: classification, tagging, span, choice."""
    route: Route

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the required fields."""
        return tuple(field.name for field in self.inputs if field.required)

    @property
    def column_fields(self) -> tuple[InputField, ...]:
        """The fields that are read from columns of their own."""
        return tuple(field for field in self.inputs if field.column)

    @property
    def served(self) -> tuple[InputField, ...]:
        """The fields of requests."""
        return tuple(field for field in self.inputs if field.served)

    @property
    def output_fields(self) -> tuple[str, ...]:
        """The fields of its output."""
        return (self.output_key,) if self.output_key else OUTPUT_FIELDS[self.output]

    @property
    def usage(self) -> str:
        """How its required fields are given on the command line, from Python and in JSON lines."""
        required = [field for field in self.inputs if field.required]
        json_fields = ", ".join(f'"{field.name}": {"[…]" if field.kind == "choices" else "…"}' for field in required)
        arguments = " ".join(field.usage for field in required)
        return f"meristem predict RUN {arguments}, or {{{json_fields}}} from Python and in JSON lines"

    @property
    def field_names(self) -> frozenset[str]:
        """The names of all fields."""
        return frozenset(field.name for field in self.inputs)

    @property
    def accepted_names(self) -> frozenset[str]:
        """The names under which fields are accepted: their own, those of requests, those of other libraries."""
        return self.field_names.union(*((field.request_name, *field.aliases) for field in self.inputs))

    def values_by_name(self, value: Any) -> dict[str, Any]:
        """Values by field name, those that are None left out; a text alone is the only required field."""
        if not isinstance(value, Mapping):
            return {self.required[0]: value}
        names: dict[str, str] = {
            other: field.name for field in self.inputs for other in (field.request_name, *field.aliases)
        }
        if len(self.required) == 1 and self.inputs[0].kind != "image":
            names.setdefault("text", self.required[0])
        names.update({name: name for name in self.field_names})
        fields_given = {str(name): item for name, item in value.items() if item is not None}
        return {names.get(name, name): item for name, item in fields_given.items()}

    def split_cells(self, cells: Sequence[str]) -> dict[str, Any] | None:
        """The cells of a line as the required fields in order, a list as all remaining cells; None if it is a text."""
        required = [field for field in self.inputs if field.required]
        if len(required) < 2 or len(cells) < len(required):
            return None
        values: dict[str, Any] = {field.name: cell for field, cell in zip(required, cells, strict=False)}
        return {**values, required[-1].name: list(cells[len(required) - 1 :])} if required[-1].is_list else values

    def parse(self, task_name: str, value: Any) -> dict[str, Any]:
        """The inputs of a sample, each of its type; what is missing or of another type is an error with the usage."""
        values, inputs = self.values_by_name(value), dict[str, Any]()
        try:
            for field in self.inputs:
                if field.name in values:
                    inputs[field.name] = field.parse(values[field.name])
                elif field.required and not self._has_words(values):
                    raise TypeError(field.name)
        except TypeError:
            raise MeristemError(f"task {task_name} takes {self.takes}: {self.usage}") from None
        return inputs

    def _has_words(self, values: Mapping[str, Any]) -> bool:
        """Whether the words of a text are given instead of it."""
        return any(field.kind == "words" and values.get(field.name) for field in self.inputs)

    def missing(self, values: Mapping[str, Any]) -> list[str]:
        """The required fields that are missing or empty in values by name."""
        return [name for name in self.required if _is_empty(values.get(name)) and not self._has_words(values)]

    def command(self, run_path: str, inputs: Mapping[str, Any]) -> str | None:
        """The command line that predicts for such inputs; None for a built-in image, which has no file."""
        arguments = [f"meristem predict {run_path}"]
        for field in self.served:
            if field.kind == "image" and is_builtin_image(inputs[field.name]):
                return None
            if inputs.get(field.name):
                arguments += field.arguments(inputs[field.name])
        return " ".join(arguments)

    def texts(self, inputs: Mapping[str, Any]) -> list[str]:
        """The texts among the inputs, for training a tokenizer on them."""
        kinds: dict[str, FieldKind] = {field.name: field.kind for field in self.served if field.kind != "image"}
        return [_joined(value) for name, value in inputs.items() if name in kinds]


def _joined(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else " ".join(map(str, value))


def _is_empty(value: Any) -> bool:
    return not value.strip() if isinstance(value, str) else not value
