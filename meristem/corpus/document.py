"""What travels through the corpus: documents, the reasons they are dropped, and the steps they pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

LONGEST = 1_000_000
"""Characters of the longest document; anything longer becomes several."""

BREAKS = (" ", "\n", "\t", "。")


@dataclass(frozen=True, slots=True)
class Document:
    """One text, and where it came from: `file:line` or `file#row`."""

    text: str
    place: str
    split: str = "train"
    mark: str = ""
    """What joins its two sides, where it has two (`sides.py`)."""
    language: str = ""
    """The language it is in, "en" or "zh", where a step asked for it and found it (`languages.py`)."""
    notes: tuple[tuple[str, int], ...] = ()
    """What steps took out of it, and how often: ("e-mail", 2), ("boilerplate lines", 5)."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A document that goes no further, and why."""

    reason: str


Step = Callable[[Document], Document | Drop]


def boundary(text: str) -> int:
    """Where to cut a text that is too long: after the last break of its second half, or anywhere if it has none."""
    last = max(text.rfind(mark, LONGEST // 2, LONGEST) for mark in BREAKS)
    return last + 1 if last >= 0 else LONGEST


def cut(text: str, place: str) -> Iterator[Document]:
    """The text as one document, or as several when it is too long for one."""
    while len(text) > LONGEST:
        at = boundary(text)
        yield Document(text[:at], place)
        text = text[at:]
    yield Document(text, place)
