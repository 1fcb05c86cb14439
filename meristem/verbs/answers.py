"""Answers as a person reads them: a label and how sure it is, entities inside their text, an answer in its passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

AROUND = 60
"""Characters of a passage on either side of an answer."""
WRITTEN = ("translation_text", "summary_text", "generated_text")


def readable(shown: Any, given: Mapping[str, Any], *, number: bool = False) -> str:
    """One answer in as few lines as it takes; `number` says that a score is no probability."""
    text = " | ".join(_short(value) for value in given.values() if isinstance(value, str))
    match shown:
        case {"answer": answer, "start": start, "end": end, "score": score}:
            return f"{score:7.2%}  {answer or '(no answer)'}{_around(given.get('passage', ''), start, end, answer)}"
        case {"intent": intent, "slots": slots, "score": score}:
            return f"{score:7.2%}  {intent:<16} {_marked(given['text'], slots)}"
        case {"choice": choice, "score": score}:
            return f"{score:7.2%}  {choice}"
        case {"label": label, "score": score}:
            return f"{score:8.3f}  {text}" if number else f"{score:7.2%}  {label:<12} {text}"
        case dict() if written := [shown[key] for key in WRITTEN if key in shown]:
            return str(written[0])
        case [{"entity_group": _}, *_]:
            return _marked(given["text"], shown)
        case [{"entity": _}, *_]:
            return " ".join(f"{one['word']}|{one['entity']}" for one in shown)
        case [{"label": _}, *_]:
            return ", ".join(f"{one['label']} {one['score']:.2%}" for one in shown) + f"  {text}"
        case []:
            return f"(none)  {text}"
    return str(shown)


def ranking(shown: Sequence[Any], given: Mapping[str, Any], *, number: bool = False) -> str:
    """The likeliest answers, one a line."""
    if all(isinstance(one, dict) and "label" in one and "choice" not in one for one in shown):
        return "\n".join(f"{one['score']:7.2%}  {one['label']}" for one in shown)
    if all(isinstance(one, dict) and "entity_group" not in one and "entity" not in one for one in shown):
        return "\n".join(readable(one, given, number=number) for one in shown)
    return readable(list(shown), given, number=number)


def _marked(text: str, entities: Sequence[Mapping[str, Any]]) -> str:
    """The text with each entity in brackets, and its kind behind it."""
    out, done = [], 0
    for one in sorted(entities, key=lambda one: one["start"]):
        kind = one["entity_group"] if "entity_group" in one else one["entity"]
        out += [text[done : one["start"]], f"[{text[one['start'] : one['end']]}|{kind}]"]
        done = one["end"]
    return "".join([*out, text[done:]])


def _around(passage: str, start: int, end: int, answer: str) -> str:
    """Where the answer stands, with a little of what is round it."""
    if not answer or not passage:
        return ""
    before, after = passage[max(0, start - AROUND) : start], passage[end : end + AROUND]
    left, right = "…" * (start > AROUND), "…" * (len(passage) > end + AROUND)
    line = f"{left}{before}[{passage[start:end]}]{after}{right}"
    return "\n         " + line.replace("\n", " ")


def _short(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
