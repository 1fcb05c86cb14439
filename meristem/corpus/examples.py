"""A few examples of what was dropped, the same ones whatever the order in which they come together."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

Example = tuple[str, str]
"""Where a document stands, and how it begins."""

MOST = 5
"""Examples kept for each reason."""

LONGEST = 200
"""Characters of an excerpt."""


def excerpt(text: str, longest: int = LONGEST) -> str:
    """How a text begins: one line, cut at a word."""
    head = " ".join(text[: 2 * longest].split())
    if len(head) <= longest and len(text) <= 2 * longest:
        whole = head
    else:
        short = head[: longest - 2]
        at = short.rfind(" ", longest // 2)
        whole = f"{short[:at] if at > 0 else short} …"
    return whole if whole.isascii() else whole.encode("utf-8", "replace").decode("utf-8")


def chosen(examples: Iterable[Example]) -> list[Example]:
    """Of different excerpts those with the smallest checksums, each at its first place.

    What is chosen depends on the set of examples alone, so that parts chosen from apart can be chosen from again.
    """
    places: dict[str, str] = {}
    for place, text in examples:
        places[text] = min(place, places.get(text, place))
    few = sorted(places, key=lambda text: (zlib.crc32(text.encode()), text))[:MOST]
    return [(places[text], text) for text in few]
