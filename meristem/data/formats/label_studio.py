"""Label Studio's exports: JSON (tasks with annotations) and JSON-MIN, with choices, spans, ratings and written text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meristem.data.formats.json import JsonFormat
from meristem.data.records import BadRecord, Record
from meristem.data.span_tags import TextSpan, tag_words

SPAN_TYPES = ("labels", "hypertextlabels", "paragraphlabels")
VALUE_KEYS = ("choices", "rating", "number", "taxonomy", "text")
"""Keys of a result's value that hold an answer about the whole text."""


class LabelStudioFormat(JsonFormat):
    """Annotated tasks; also recognised in any .json file of labelled data."""

    suffixes = ()

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The annotated texts."""
        from meristem.data.annotations import convert_annotations  # annotations imports this module

        for record in super().records(columns):
            yield convert_annotations(*record) if isinstance(record, Record) else record


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether an object is a task with annotations, or one of JSON-MIN with labelled spans."""
    if isinstance(value.get("data"), dict) and isinstance(value.get("annotations", value.get("completions")), list):
        return True
    return "annotator" in value and "annotation_id" in value


def to_columns(value: Mapping[str, Any]) -> dict[str, Any]:
    """The task's data, a column for each answer, and words and tags if there are spans."""
    if not isinstance(value.get("data"), dict):
        return _min_columns(value)
    data: dict[str, Any] = dict(value["data"])
    results = _chosen_results(value.get("annotations", value.get("completions")) or [])
    answers, spans, has_span_label = dict[str, Any](), list[Mapping[str, Any]](), False
    text_key = _text_key(data, results)
    for result in results:
        kind, content = result.get("type"), result.get("value")
        if not isinstance(content, Mapping):
            continue
        if kind in SPAN_TYPES:
            has_span_label = True
            spans.append(content)
        elif (answer := _answer(content)) is not None:
            answers[str(result.get("from_name", "label"))] = answer
    if len(answers) == 1:
        answers = {"label": next(iter(answers.values())), **answers}
    columns = {**data, **answers}
    return _with_tags(columns, text_key, spans) if has_span_label else columns


def _min_columns(value: Mapping[str, Any]) -> dict[str, Any]:
    """A row of JSON-MIN: data and answers side by side, spans as a list of objects."""
    columns = dict(value)
    spans_key = next(
        (key for key, items in value.items() if isinstance(items, list) and items and all(map(_is_span, items))), None
    )
    if spans_key is not None:
        return _with_tags(columns, _text_key(columns, []), columns.pop(spans_key))
    for key, item in value.items():
        if isinstance(item, Mapping) and isinstance(item.get("choices"), list):
            columns[key] = item["choices"]
    return columns


def _is_span(item: Any) -> bool:
    return isinstance(item, Mapping) and {"start", "end", "labels"} <= item.keys()


def _chosen_results(annotations: list[Any]) -> list[Mapping[str, Any]]:
    """The results of the annotation that counts: the ground truth, else the first that was not cancelled."""
    complete = [
        item for item in annotations if isinstance(item, Mapping) and not item.get("was_cancelled", item.get("skipped"))
    ]
    chosen = next((item for item in complete if item.get("ground_truth")), complete[0] if complete else {})
    results = chosen.get("result")
    return [item for item in results if isinstance(item, Mapping)] if isinstance(results, list) else []


def _text_key(data: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """The key of the annotated text: the name that results refer to, `text`, or the only text."""
    names = [str(result.get("to_name")) for result in results]
    texts = [key for key, item in data.items() if isinstance(item, str)]
    candidates = [name for name in (*names, "text") if name in texts] or texts
    if not candidates:
        raise ValueError("a task without a text")
    return candidates[0]


def _answer(content: Mapping[str, Any]) -> Any:
    """An answer about the whole text; of a list with one item, that item."""
    for key in VALUE_KEYS:
        if key in content:
            answer = content[key]
            return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
    return None


def _with_tags(columns: dict[str, Any], text_key: str, spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    text = columns[text_key]
    words, tags = tag_words(text, [_parse_span(span, text) for span in spans])
    return {**columns, "text": text, "words": words, "tags": tags}


def _parse_span(content: Mapping[str, Any], text: str) -> TextSpan:
    """A span, checked against its text: a browser counts UTF-16 units where Python counts characters."""
    labels = next((content[key] for key in ("labels", *SPAN_TYPES) if content.get(key)), None)
    start, end = content.get("start"), content.get("end")
    if type(start) is not int or type(end) is not int or not isinstance(labels, list) or not labels:
        raise ValueError(f"a span needs start, end and labels; got {start!r}, {end!r}, {labels!r}")
    expected = content.get("text")
    if isinstance(expected, str) and text[start:end] != expected:
        units = text.encode("utf-16-le")
        prefix, part = units[: 2 * start], units[2 * start : 2 * end]
        if part.decode("utf-16-le", "replace") != expected:
            raise ValueError(
                f"span {labels[0]} from {start} to {end} is {text[start:end]!r}, but should be {expected!r}"
            )
        start = len(prefix.decode("utf-16-le", "replace"))
        end = start + len(expected)
    return TextSpan(start, end, str(labels[0]))
