"""Predictions formatted for the terminal: a label with its probability, marked entities, an answer in its passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meristem.interfaces.task_parts import OutputFormat

CONTEXT_CHARS = 60
"""Characters of the passage printed on each side of an answer."""


def format_prediction(output_format: OutputFormat, output: Any, inputs: Mapping[str, Any]) -> str:
    """An output of this format in one or two lines."""
    text = " | ".join(_shorten(value) for value in inputs.values() if isinstance(value, str))
    located_in = inputs.get(output_format.located_in, "")
    match output_format.kind:
        case "label":
            return f"{output['score']:7.2%}  {output['label']:<12} {text}"
        case "number":
            return f"{output['score']:8.3f}  {text}"
        case "labels":
            return (", ".join(map(_format_label, output)) or "(none)") + f"  {text}"
        case "layers":
            return ", ".join(map(_format_label, output)) + f"  {text}" if _is_text_level(output) else str(output)
        case "tags":
            return _format_tags(output, located_in)
        case "intent":
            entities = _mark_entities(located_in, output["slots"])
            return f"{output['score']:7.2%}  {output['intent']:<16} {entities}"
        case "span":
            if output["start"] is None:
                return f"{output['score']:7.2%}  {output['answer']}"
            context = _answer_context(located_in, output["start"], output["end"], output["answer"])
            return f"{output['score']:7.2%}  {output['answer'] or '(no answer)'}{context}"
        case "choice":
            return f"{output['score']:7.2%}  {output['choice']}"
        case "text":
            return str(next(iter(output.values())))


def format_ranking(output_format: OutputFormat, outputs: Sequence[Any], inputs: Mapping[str, Any]) -> str:
    """The most likely predictions, one per line."""
    kind = output_format.kind
    if kind in ("label", "labels") or (kind == "layers" and _is_text_level(outputs)):
        return "\n".join(f"{item['score']:7.2%}  {item['label']}" for item in outputs)
    if kind in ("tags", "layers"):
        return format_prediction(output_format, outputs, inputs)
    return "\n".join(format_prediction(output_format, item, inputs) for item in outputs)


def _format_label(item: Mapping[str, Any]) -> str:
    return f"{item['label']} {item['score']:.2%}"


def _is_text_level(layers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a probe's output is the label of a text by layer, not those of its words."""
    return bool(layers) and "label" in layers[0]


def _format_tags(tags: Sequence[Mapping[str, Any]], text: str) -> str:
    """Entities marked in the text, or each word with its tag."""
    if not tags:
        return f"(none)  {_shorten(text)}"
    return (
        _mark_entities(text, tags)
        if "entity_group" in tags[0]
        else " ".join(f"{item['word']}|{item['entity']}" for item in tags)
    )


def _mark_entities(text: str, entities: Sequence[Mapping[str, Any]]) -> str:
    """The text with each entity as `[entity|type]`."""
    pieces, end_of_last = [], 0
    for entity in sorted(entities, key=lambda entity: entity["start"]):
        kind = entity["entity_group"] if "entity_group" in entity else entity["entity"]
        pieces += [text[end_of_last : entity["start"]], f"[{text[entity['start'] : entity['end']]}|{kind}]"]
        end_of_last = entity["end"]
    return "".join([*pieces, text[end_of_last:]])


def _answer_context(passage: str, start: int, end: int, answer: str) -> str:
    """The answer in brackets, with the text around it."""
    if not answer or not passage:
        return ""
    before, after = passage[max(0, start - CONTEXT_CHARS) : start], passage[end : end + CONTEXT_CHARS]
    left, right = "…" * (start > CONTEXT_CHARS), "…" * (len(passage) > end + CONTEXT_CHARS)
    line = f"{left}{before}[{passage[start:end]}]{after}{right}"
    return "\n         " + line.replace("\n", " ")


def _shorten(text: str, max_chars: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"
