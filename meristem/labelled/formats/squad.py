"""SQuAD's articles, version 1 and 2: paragraphs, questions, and answers by where they begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem.labelled.found import Flaw, Found

COLUMNS = ("question", "passage", "answers", "id")
USED = ("question", "passage", "answers", "text")


def questions(articles: list[Any], name: str) -> Iterator[Found | Flaw]:
    """Every question with its passage; None as answers where a version 1 file has none."""
    paragraphs = [
        paragraph
        for article in articles
        if isinstance(article, dict)
        for paragraph in _list(article.get("paragraphs"))
        if isinstance(paragraph, dict)
    ]
    asked = (one for part in paragraphs for one in _list(part.get("qas")))
    second = any("is_impossible" in one for one in asked if isinstance(one, dict))
    for number, paragraph in enumerate(paragraphs, 1):
        passage = paragraph.get("context")
        if not isinstance(passage, str):
            yield Flaw(f"{name}#{number}: paragraph {number} has no context")
            continue
        for one in _list(paragraph.get("qas")):
            yield _question(one, passage, second, name)


def _question(one: Any, passage: str, second: bool, name: str) -> Found | Flaw:
    if not isinstance(one, dict):
        return Flaw(f"{name}: a question is an object, not a {type(one).__name__}")
    place = f"{name}#{one.get('id', '?')!s:.80}"
    answers = _list(one.get("answers"))
    if one.get("is_impossible"):
        if answers:
            return Flaw(f"{place}: marked as impossible to answer, but has answers; mend one or the other")
        told: list[Any] | None = []
    elif second and not answers:
        return Flaw(f"{place}: no answers, and not marked as impossible to answer (is_impossible)")
    else:
        told = list(answers) or None
    values = {"question": one.get("question"), "passage": passage, "answers": told, "id": str(one.get("id", ""))}
    return Found(values, place)


def _list(value: Any) -> list[Any]:
    """A list as it is; nothing in place of anything else."""
    return value if isinstance(value, list) else []
