"""Annotated spans of a text as words with BIO tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from meristem.data.text_units import word_spans

OUTSIDE = "O"


@dataclass(frozen=True, order=True)
class TextSpan:
    """A labelled span: characters from `start` to before `end`."""

    start: int
    end: int
    label: str


def tag_words(text: str, spans: Iterable[TextSpan]) -> tuple[list[str], list[str]]:
    """The words of a text, cut where a span begins or ends, and a BIO tag for each.

    Raises ValueError with a sentence for a span that is not in the text or overlaps another: a word has one tag.
    """
    ordered = sorted(spans)
    check_spans(text, ordered)
    cuts = sorted({position for span in ordered for position in (span.start, span.end)})
    words, tags, current = [], [], 0
    for start, end in _cut_words(text, cuts):
        while current < len(ordered) and ordered[current].end <= start:
            current += 1
        span = ordered[current] if current < len(ordered) and ordered[current].start <= start else None
        words.append(text[start:end])
        if span is None:
            tags.append(OUTSIDE)
        else:
            is_first = not text[span.start : start].strip()
            tags.append(f"{'B' if is_first else 'I'}-{span.label}")
    return words, tags


def check_spans(text: str, ordered: Sequence[TextSpan]) -> None:
    """Raise ValueError for the first span that is empty, not in the text, or overlaps the one before."""
    previous: TextSpan | None = None
    for span in ordered:
        if not 0 <= span.start < span.end <= len(text):
            raise ValueError(
                f"span {span.label} from {span.start} to {span.end} is not in a text of {len(text)} characters"
            )
        if not text[span.start : span.end].strip():
            raise ValueError(f"span {span.label} from {span.start} to {span.end} has only white space")
        if previous is not None and span.start < previous.end:
            raise ValueError(
                f"spans {previous.label} ({previous.start} to {previous.end}) and {span.label} ({span.start} to "
                f"{span.end}) overlap, and a word has one tag"
            )
        previous = span


def _cut_words(text: str, cuts: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The words' positions, each cut at the given positions."""
    for start, end in word_spans(text):
        inner = [position for position in cuts if start < position < end] if cuts else []
        bounds = [start, *inner, end]
        for first, last in pairwise(bounds):
            if text[first:last].strip():
                yield first, last
