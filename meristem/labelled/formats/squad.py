"""SQuAD articles, version 1.1 and 2.0: paragraphs, questions, and answers with their start characters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem.labelled.rows import RawRow, RowError

COLUMNS = ("question", "passage", "answers", "id")
CONSUMED_SETTINGS = ("question", "passage", "answers", "text")


def iter_questions(articles: list[Any], name: str) -> Iterator[RawRow | RowError]:
    """Every question with its passage; answers are None if a version 1.1 file has none."""
    paragraphs = [
        paragraph
        for article in articles
        if isinstance(article, dict)
        for paragraph in _as_list(article.get("paragraphs"))
        if isinstance(paragraph, dict)
    ]
    all_questions = (question for item in paragraphs for question in _as_list(item.get("qas")))
    is_version_2 = any("is_impossible" in question for question in all_questions if isinstance(question, dict))
    for number, paragraph in enumerate(paragraphs, 1):
        passage = paragraph.get("context")
        if not isinstance(passage, str):
            yield RowError(f"{name}#{number}: paragraph {number} has no context")
            continue
        for question in _as_list(paragraph.get("qas")):
            yield _parse_question(question, passage, is_version_2, name)


def _parse_question(question: Any, passage: str, is_version_2: bool, name: str) -> RawRow | RowError:
    if not isinstance(question, dict):
        return RowError(f"{name}: a question is an object, not a {type(question).__name__}")
    location = f"{name}#{question.get('id', '?')!s:.80}"
    answers = _as_list(question.get("answers"))
    if question.get("is_impossible"):
        if answers:
            return RowError(f"{location}: marked as impossible to answer, but has answers; fix one or the other")
        gold_answers: list[Any] | None = []
    elif is_version_2 and not answers:
        return RowError(f"{location}: no answers, and not marked as impossible to answer (is_impossible)")
    else:
        gold_answers = list(answers) or None
    values = {
        "question": question.get("question"),
        "passage": passage,
        "answers": gold_answers,
        "id": str(question.get("id", "")),
    }
    return RawRow(values, location)


def _as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []
