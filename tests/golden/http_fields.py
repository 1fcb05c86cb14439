"""The HTTP interface: routes, fields of requests and responses, names of the metrics.

Fields are paths: `messages[].role`, `answer.candidates[].score`. Request fields come from the OpenAPI description,
without the names of its schemas; response fields, which it does not list, from actual responses.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from PIL import Image
from starlette.testclient import TestClient

TEXT, MASKED = "Ada walked home.", "Ada walked [MASK]."
COMPLETION = {"model": "gpt2", "prompt": TEXT, "max_tokens": 2, "temperature": 0, "logprobs": 2}
CHAT = {"model": "gpt2", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 2, "logprobs": True}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
GETS = ("/health/live", "/health/ready", "/runs", "/v1/models", "/v1/models/{model}")
DATA_KEYS = re.compile(r"(?<=\.logprobs\.top_logprobs\[\]\.).+")
"""Keys of a mapping that are tokens, not fields."""


def picture() -> str:
    """A small image in base64."""
    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Request bodies whose responses together have every field."""
    generate = {"model": "gpt2", "prompt": TEXT, "max_tokens": 2, "top": 2}
    return [
        ("/generate", generate),
        ("/generate", {**generate, "stream": True}),
        ("/generate", {**generate, "beams": 2, "top": 0}),
        ("/fill", {"model": "bert", "text": [MASKED], "top": 2}),
        ("/fill", {"model": "bert", "text": MASKED}),
        ("/fill", {"model": "bert"}),
        ("/score", {"model": "elmo", "text": TEXT}),
        ("/score", {"model": "transformer", "text": TEXT, "text_b": TEXT}),
        ("/detect", {"model": "electra", "text": TEXT}),
        *(("/embed", {"model": "bert", "text": TEXT, "level": level}) for level in ("text", "token", "word")),
        ("/attention", {"model": "bert", "text": TEXT}),
        ("/attention", {"model": "captioner", "image": picture(), "kind": "image"}),
        ("/classify", {"model": "reviews", "text": TEXT, "top": 2}),
        ("/classify", {"model": "pairs", "text": TEXT, "text_b": TEXT, "top": 2}),
        ("/tag", {"model": "tagging", "text": TEXT, "top": 2}),
        ("/answer", {"model": "squad", "question": "Who walked?", "passage": TEXT, "top": 2}),
        ("/choose", {"model": "choices", "text": TEXT, "choices": ["one", "two"], "top": 2}),
        ("/translate", {"model": "translator", "text": TEXT}),
        ("/summarise", {"model": "shortener", "text": TEXT}),
        ("/caption", {"model": "captioner", "image": picture()}),
        ("/reply", {"model": "talker", "turns": [TEXT]}),
        *(("/v1/completions", {**COMPLETION, **extra_fields}) for extra_fields in ({}, STREAM)),
        *(("/v1/chat/completions", {**CHAT, "top_logprobs": 2, **extra_fields}) for extra_fields in ({}, STREAM)),
        ("/v1/embeddings", {"model": "bert", "input": TEXT}),
    ]


def answer_fields(client: TestClient) -> dict[str, set[str]]:
    """(route, status) → fields of the responses."""
    fields: dict[str, set[str]] = {}
    for path in GETS:
        answer = client.get(path.format(model="gpt2"))
        fields[f"GET {path} {answer.status_code}"] = set(value_fields(answer.json()))
    for path, body in requests():
        answer = client.post(path, json=body)
        streamed = answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        values = [json.loads(event) for event in events if event != "[DONE]"] if streamed else [answer.json()]
        known_fields = fields.setdefault(f"POST {path} {answer.status_code}{' stream' * streamed}", set())
        known_fields.update(field for value in values for field in value_fields(value))
    return fields


def value_fields(value: Any, prefix: str = "") -> Iterator[str]:
    """The paths of the fields in a JSON value."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            field = DATA_KEYS.sub("{token}", f"{prefix}.{name}".removeprefix("."))
            yield field
            yield from value_fields(inner, field)
    elif isinstance(value, list):
        for inner in value:
            yield from value_fields(inner, f"{prefix}[]")


def request_fields(description: Mapping[str, Any]) -> dict[str, set[str]]:
    """Route → fields of its body and its parameters, with the values of enumerations."""
    fields = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            contents = operation.get("requestBody", {}).get("content", {}).values()
            fields_of_request = {
                field for content in contents for field in schema_fields(content["schema"], description)
            }
            fields_of_request |= {
                f"{parameter['in']} {parameter['name']}" for parameter in operation.get("parameters", [])
            }
            fields_of_request |= {f"status {status}" for status in operation["responses"]}
            fields[f"{method.upper()} {path}"] = fields_of_request
    return fields


def schema_fields(schema: Mapping[str, Any], description: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of the fields that a schema allows."""
    if "$ref" in schema:
        schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for value in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]:
        yield f"{prefix} = {value}"
    for choice in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(choice, ()):
            yield from schema_fields(inner, description, prefix)
    for name, inner in schema.get("properties", {}).items():
        field = f"{prefix}.{name}".removeprefix(".")
        yield f"{field} (required)" if name in schema.get("required", ()) else field
        yield from schema_fields(inner, description, field)
    if isinstance(schema.get("items"), Mapping):
        yield from schema_fields(schema["items"], description, f"{prefix}[]")


def prometheus_names(text: str) -> set[str]:
    """Name, type and labels of every metric in a Prometheus page."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for name, inside in re.findall(r"^(\w+)\{(.*)\} \S+$", text, re.MULTILINE):
        base = name if name in kinds else re.sub(r"_(bucket|sum|count)$", "", name)
        labels[base].update(re.findall(r'(\w+)="', inside))
    return {f"{name} {kind} {' '.join(sorted(labels[name]))}".strip() for name, kind in kinds.items()}
