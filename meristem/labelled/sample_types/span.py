"""Extractive question answering samples: a question, a passage, and answers as spans of it."""

from __future__ import annotations

from typing import Any

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import ANSWER_COLUMNS, ANSWER_START_COLUMNS, PASSAGE_COLUMNS, QUESTION_COLUMNS
from meristem.labelled.rows import RawRow, RowError
from meristem.labelled.sample_type import SampleType

MAX_START_SHIFT = 8
"""Characters by which an answer's start may be off and still be corrected."""

AnswerSpan = tuple[str, int]


class SpanSample(SampleType):
    """{"question", "passage", "id"} → answers as (text, start character); empty means "no answer"."""

    single_gold = False

    def resolve_columns(self) -> None:
        """Answers may be SQuAD's, a list of texts, or one text with its start in another column."""
        columns = self.columns
        self.passage_column = columns.require("passage", PASSAGE_COLUMNS, "the passage")
        self.question_column = columns.require(
            "question", QUESTION_COLUMNS, "the question", exclude=(self.passage_column,)
        )
        used_columns = (self.passage_column, self.question_column)
        self.answers_column = self.gold_column("answers", ANSWER_COLUMNS, "the answers", exclude=used_columns)
        by_lower_name = {name.lower(): name for name in columns.names}
        self.start_column = next((by_lower_name[name] for name in ANSWER_START_COLUMNS if name in by_lower_name), None)
        self.id_column = by_lower_name.get("id")

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample."""
        passage = cell_values.parse_raw_text(self.require_cell(row, self.passage_column), "passage", row.location)
        question = cell_values.parse_text(self.require_cell(row, self.question_column), "question", row.location)
        question_id = str(row.values.get(self.id_column, "") if self.id_column else "") or row.location
        gold = self._gold_answers(row, passage)
        inputs = {"question": question, "passage": passage, "id": question_id}
        return [Sample(inputs=inputs, gold=gold, location=row.location)]

    def _gold_answers(self, row: RawRow, passage: str) -> tuple[AnswerSpan, ...] | None:
        """The answers found in the passage; None if the row has no answers column or value."""
        value = cell_values.parse_list(row.values.get(self.answers_column)) if self.answers_column else None
        if value is None or (isinstance(value, float) and cell_values.is_empty(value)):
            if self.require_gold:
                raise self.missing_gold_error(row, "answers", self.answers_column)
            return None
        answers = _parse_answers(value, row.values.get(self.start_column or ""), row.location)
        located = (self._locate_answer(text, start, passage, row.location) for text, start in answers)
        located_answers = [answer for answer in located if answer is not None]
        if answers and not located_answers:
            text, start = answers[0]
            position_text = f"at character {start}" if start is not None else "anywhere"
            found_at = passage.find(text)
            hint = f"; it is at character {found_at}" if found_at >= 0 else ""
            raise RowError(f"{row.location}: the answer {text!r} is not in the passage {position_text}{hint}")
        return tuple(located_answers)

    def _locate_answer(self, text: str, start: int | None, passage: str, location: str) -> AnswerSpan | None:
        """(text, start) of an answer in the passage; a start off by a few characters is corrected, otherwise None."""
        if start is not None and passage[start : start + len(text)] == text and start >= 0:
            return text, start
        if start is None:
            first = passage.find(text)
            if first < 0:
                self.notes.add("answers dropped that their passages do not hold", location)
            return (text, first) if first >= 0 else None
        nearby_starts = _occurrences(text, passage, start - MAX_START_SHIFT, start + MAX_START_SHIFT)
        if len(nearby_starts) == 1:
            self.notes.add("answers moved by a few characters to where the passage has them", location)
            return text, nearby_starts[0]
        self.notes.add("answers dropped whose beginning does not match their passage", location)
        return None


def _parse_answers(value: Any, start: Any, location: str) -> list[tuple[str, int | None]]:
    """The answers a cell holds, in any of the ways they are written."""
    if isinstance(value, dict):  # a data set's columns: {"text": […], "answer_start": […]}
        texts, starts = value.get("text") or [], value.get("answer_start", value.get("start"))
        texts, starts = ([texts], [starts]) if isinstance(texts, str) else (texts, starts or [None] * len(texts))
        if len(texts) != len(starts):
            raise RowError(f"{location}: {len(texts)} answers, but {len(starts)} beginnings")
        return [_parse_answer(text, answer_start, location) for text, answer_start in zip(texts, starts, strict=True)]
    if isinstance(value, str):
        return [_parse_answer(value, start, location)] if value.strip() else []
    answers = []
    for item in value:
        if isinstance(item, dict):
            text, answer_start = item.get("text"), item.get("answer_start", item.get("start"))
        else:
            text, answer_start = item if isinstance(item, list | tuple) and len(item) == 2 else (item, None)
        answers.append(_parse_answer(text, answer_start, location))
    return answers


def _parse_answer(text: Any, start: Any, location: str) -> tuple[str, int | None]:
    if not isinstance(text, str) or not text.strip():
        raise RowError(f"{location}: an answer without text")
    try:
        return text, None if cell_values.is_empty(start) else int(start)
    except (TypeError, ValueError, OverflowError):
        raise RowError(f"{location}: an answer begins at {start!r:.60}, which is no number") from None


def _occurrences(text: str, passage: str, low: int, high: int) -> list[int]:
    """Where a text begins in a passage, between two places."""
    starts, position = [], passage.find(text, max(0, low))
    while 0 <= position <= high:
        starts.append(position)
        position = passage.find(text, position + 1)
    return starts
