"""The document type of the corpus pipeline, the reason for dropping one, and the type of a cleaning step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from meristem.data.text_units import cut_text


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


def cut_document(text: str, location: str) -> Iterator[Document]:
    """The text as one document, or as several if it is too long for one."""
    return (Document(piece, location) for piece in cut_text(text))
