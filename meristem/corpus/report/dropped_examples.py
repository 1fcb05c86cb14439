"""A few examples of dropped documents per reason, independent of the order in which documents arrive."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

DropExample = tuple[str, str]
"""Location and beginning of a document."""

MAX_EXAMPLES = 5
"""Examples per reason."""

EXCERPT_CHARS = 200
"""Characters of an excerpt."""


def excerpt(text: str, max_chars: int = EXCERPT_CHARS) -> str:
    """The beginning of a text: one line, cut at a word boundary."""
    head = " ".join(text[: 2 * max_chars].split())
    if len(head) <= max_chars and len(text) <= 2 * max_chars:
        text_shown = head
    else:
        truncated = head[: max_chars - 2]
        space = truncated.rfind(" ", max_chars // 2)
        text_shown = f"{truncated[:space] if space > 0 else truncated} …"
    return text_shown if text_shown.isascii() else text_shown.encode("utf-8", "replace").decode("utf-8")


def select_examples(examples: Iterable[DropExample]) -> list[DropExample]:
    """Of distinct excerpts, those with the smallest checksums, each with its first location.

    The selection depends only on the set of examples, so that selections from parts can be merged and selected again.
    """
    locations: dict[str, str] = {}
    for location, text in examples:
        locations[text] = min(location, locations.get(text, location))
    selected = sorted(locations, key=lambda text: (zlib.crc32(text.encode()), text))[:MAX_EXAMPLES]
    return [(locations[text], text) for text in selected]
