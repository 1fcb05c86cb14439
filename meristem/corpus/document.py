"""The document type of the corpus pipeline, the reason for dropping one, and the type of a cleaning step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_DOCUMENT_CHARS = 1_000_000
"""Characters of the longest document; longer texts are cut into several."""

BREAK_CHARS = (" ", "\n", "\t", "。")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its location: `file:line` or `file#row`."""

    text: str
    location: str
    split: str = "train"
    side_separator: str = ""
    """The separator between its two sides, if it has two (`paired_text.py`)."""
    language: str = ""
    """Its language, such as "en" or "zh", if a step identified it (`language_id.py`)."""
    notes: tuple[tuple[str, int], ...] = ()
    """What steps removed from it, and how often: ("e-mail", 2), ("boilerplate lines", 5)."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A dropped document: the reason."""

    reason: str


CleaningStep = Callable[[Document], Document | Drop]


def cut_position(text: str) -> int:
    """Where to cut a text that is too long: after the last line or word break in its second half, else at the limit."""
    last = max(text.rfind(char, MAX_DOCUMENT_CHARS // 2, MAX_DOCUMENT_CHARS) for char in BREAK_CHARS)
    return last + 1 if last >= 0 else MAX_DOCUMENT_CHARS


def cut_document(text: str, location: str) -> Iterator[Document]:
    """The text as one document, or as several if it is too long for one."""
    while len(text) > MAX_DOCUMENT_CHARS:
        position = cut_position(text)
        yield Document(text[:position], location)
        text = text[position:]
    yield Document(text, location)
