"""Predictions formatted for the terminal: a label with its probability, marked entities, an answer in its passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CONTEXT_CHARS = 60
"""Characters of the passage printed on each side of an answer."""
GENERATED_TEXT_KEYS = ("translation_text", "summary_text", "generated_text")


def format_prediction(output: Any, inputs: Mapping[str, Any], *, is_regression: bool = False) -> str:
    """A prediction in one or two lines; with `is_regression` the score is not a probability."""
    text = " | ".join(_shorten(value) for value in inputs.values() if isinstance(value, str))
    match output:
        case {"answer": answer, "start": start, "end": end, "score": score}:
            context = _answer_context(inputs.get("passage", ""), start, end, answer)
            return f"{score:7.2%}  {answer or '(no answer)'}{context}"
        case {"intent": intent, "slots": slots, "score": score}:
            return f"{score:7.2%}  {intent:<16} {_mark_entities(inputs['text'], slots)}"
        case {"choice": choice, "score": score}:
            return f"{score:7.2%}  {choice}"
        case {"label": label, "score": score}:
            return f"{score:8.3f}  {text}" if is_regression else f"{score:7.2%}  {label:<12} {text}"
        case dict() if generated := [output[key] for key in GENERATED_TEXT_KEYS if key in output]:
            return str(generated[0])
        case [{"entity_group": _}, *_]:
            return _mark_entities(inputs["text"], output)
        case [{"entity": _}, *_]:
            return " ".join(f"{item['word']}|{item['entity']}" for item in output)
        case [{"label": _}, *_]:
            return ", ".join(f"{item['label']} {item['score']:.2%}" for item in output) + f"  {text}"
        case []:
            return f"(none)  {text}"
    return str(output)


def format_ranking(outputs: Sequence[Any], inputs: Mapping[str, Any], *, is_regression: bool = False) -> str:
    """The most likely predictions, one per line."""
    if all(isinstance(item, dict) and "label" in item and "choice" not in item for item in outputs):
        return "\n".join(f"{item['score']:7.2%}  {item['label']}" for item in outputs)
    if all(isinstance(item, dict) and "entity_group" not in item and "entity" not in item for item in outputs):
        return "\n".join(format_prediction(item, inputs, is_regression=is_regression) for item in outputs)
    return format_prediction(list(outputs), inputs, is_regression=is_regression)


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
