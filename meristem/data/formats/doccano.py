"""Doccano's exports: JSON lines with a text and its labels, spans (with offsets), or relations' entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meristem.data.formats.jsonl import JsonlFormat
from meristem.data.records import BadRecord, Record
from meristem.data.span_tags import TextSpan, tag_words

SPAN_KEYS = ("label", "labels", "entities", "spans")
EMPTY_KEYS = ("entities", "spans", "label")
"""Keys whose empty list says that a text has no span."""
START_KEYS, END_KEYS, LABEL_KEYS = ("start_offset", "start"), ("end_offset", "end"), ("label", "labels", "type")


class DoccanoFormat(JsonlFormat):
    """JSON lines whose spans become words and tags; also recognised in any .jsonl file of labelled data."""

    suffixes = ()

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The annotated texts; a list of one label name is that label."""
        from meristem.data.annotations import convert_annotations  # annotations imports this module

        for record in super().records(columns):
            if isinstance(record, Record) and isinstance(record.value, dict):
                yield convert_annotations(_with_single_label(record.value), record.location)
            else:
                yield record


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether an object has a text and a list of spans."""
    return isinstance(value.get("text"), str) and _span_key(value) is not None


def to_columns(value: Mapping[str, Any]) -> dict[str, Any]:
    """Spans as words and tags beside the other columns; an empty list stays too, since it may be one of label names."""
    key = _span_key(value)
    assert key is not None
    words, tags = tag_words(value["text"], [_parse_span(span) for span in value[key]])
    others = {name: item for name, item in value.items() if name != key or not item}
    return {**others, "words": words, "tags": tags}


def _span_key(value: Mapping[str, Any]) -> str | None:
    """The key whose value is a list of spans; an empty list counts if its name leaves no doubt."""
    for key in SPAN_KEYS:
        items = value.get(key)
        if isinstance(items, list) and items and all(map(_is_span, items)):
            return key
    return next((key for key in EMPTY_KEYS if value.get(key) == []), None)


def _is_span(item: Any) -> bool:
    if isinstance(item, dict):
        return any(key in item for key in START_KEYS) and any(key in item for key in END_KEYS)
    return isinstance(item, list) and len(item) == 3 and all(type(number) is int for number in item[:2])


def _with_single_label(value: dict[str, Any]) -> dict[str, Any]:
    names = value.get("label")
    is_single = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
    return {**value, "label": names[0]} if is_single and names else value


def _parse_span(item: Any) -> TextSpan:
    if isinstance(item, list):
        start, end, label = item
    else:
        start, end, label = (
            next((item[key] for key in keys if key in item), None) for keys in (START_KEYS, END_KEYS, LABEL_KEYS)
        )
        label = label[0] if isinstance(label, list) and label else label
    if type(start) is not int or type(end) is not int or not isinstance(label, str) or not label:
        raise ValueError(f"a span needs start, end and label; got {start!r}, {end!r}, {label!r}")
    return TextSpan(start, end, label)
