"""A question, and a passage that holds its answer."""

from __future__ import annotations

from typing import Any

from meristem.labelled import values
from meristem.labelled.columns import ANSWER_START, ANSWERS, PASSAGE, QUESTION
from meristem.labelled.found import Flaw, Found
from meristem.labelled.shape import Shape
from meristem.task import Sample

NEAR = 8
"""Characters by which an answer's beginning may be off and still be mended."""

Answer = tuple[str, int]


class Span(Shape):
    """{"question", "passage", "id"} → answers as (text, start); none is "no answer"."""

    one_gold = False

    def look(self) -> None:
        """Answers may be SQuAD's, a list of texts, or one text with its beginning in a column beside it."""
        columns = self.columns
        self.passage = columns.need("passage", PASSAGE, "the passage")
        self.question = columns.need("question", QUESTION, "the question", besides=(self.passage,))
        taken = (self.passage, self.question)
        self.answers = self.right_column("answers", ANSWERS, "the answers", besides=taken)
        known = {name.lower(): name for name in columns.names}
        self.start = next((known[name] for name in ANSWER_START if name in known), None)
        self.id = known.get("id")

    def samples(self, found: Found) -> list[Sample]:
        """One sample."""
        passage = values.raw(self.cell(found, self.passage), "passage", found.place)
        question = values.text(self.cell(found, self.question), "question", found.place)
        number = str(found.values.get(self.id, "") if self.id else "") or found.place
        gold = self._right(found, passage)
        return [Sample(given={"question": question, "passage": passage, "id": number}, gold=gold, place=found.place)]

    def _right(self, found: Found, passage: str) -> tuple[Answer, ...] | None:
        """The answers that the passage holds."""
        value = values.listed(found.values.get(self.answers)) if self.answers else None
        if value is None or (isinstance(value, float) and values.nothing(value)):
            if self.gold:
                raise self.unlabelled(found, "answers", self.answers)
            return None
        told = list(_told(value, found.values.get(self.start) if self.start else None, found.place))
        held = [answer for text, start in told if (answer := self._placed(text, start, passage, found.place))]
        if told and not held:
            text, start = told[0]
            where = f"at character {start}" if start is not None else "anywhere"
            first = passage.find(text)
            instead = f"; it stands at {first}" if first >= 0 else ""
            raise Flaw(f"{found.place}: the passage does not hold the answer {text!r} {where}{instead}")
        return tuple(held)

    def _placed(self, text: str, start: int | None, passage: str, place: str) -> Answer | None:
        """An answer where it stands; one that is off by a little is mended, another dropped."""
        if start is not None and passage[start : start + len(text)] == text and start >= 0:
            return text, start
        if start is None:
            first = passage.find(text)
            if first < 0:
                self.notes.add("answers dropped that their passages do not hold", place)
            return (text, first) if first >= 0 else None
        near = _occurrences(text, passage, start - NEAR, start + NEAR)
        if len(near) == 1:
            self.notes.add("answers moved by a few characters to where the passage has them", place)
            return text, near[0]
        self.notes.add("answers dropped whose beginning does not match their passage", place)
        return None


def _told(value: Any, start: Any, place: str) -> list[tuple[str, int | None]]:
    """The answers a cell holds, in any of the ways they are written."""
    if isinstance(value, dict):  # a data set's columns: {"text": […], "answer_start": […]}
        texts, starts = value.get("text") or [], value.get("answer_start", value.get("start"))
        texts, starts = ([texts], [starts]) if isinstance(texts, str) else (texts, starts or [None] * len(texts))
        if len(texts) != len(starts):
            raise Flaw(f"{place}: {len(texts)} answers, but {len(starts)} beginnings")
        return [_answer(text, first, place) for text, first in zip(texts, starts, strict=True)]
    if isinstance(value, str):
        return [_answer(value, start, place)] if value.strip() else []
    out = []
    for one in value:
        if isinstance(one, dict):
            out.append(_answer(one.get("text"), one.get("answer_start", one.get("start")), place))
        else:
            text, first = one if isinstance(one, list | tuple) and len(one) == 2 else (one, None)
            out.append(_answer(text, first, place))
    return out


def _answer(text: Any, start: Any, place: str) -> tuple[str, int | None]:
    if not isinstance(text, str) or not text.strip():
        raise Flaw(f"{place}: an answer without text")
    try:
        return text, None if values.nothing(start) else int(start)
    except (TypeError, ValueError, OverflowError):
        raise Flaw(f"{place}: an answer begins at {start!r:.60}, which is no number") from None


def _occurrences(text: str, passage: str, low: int, high: int) -> list[int]:
    """Where a text begins in a passage, between two places."""
    found, at = [], passage.find(text, max(0, low))
    while 0 <= at <= high:
        found.append(at)
        at = passage.find(text, at + 1)
    return found
