"""Which column holds the text."""

from __future__ import annotations

from collections.abc import Sequence

from meristem.settings import MeristemError, did_you_mean

USUAL = ("text", "content", "body", "sentence", "document")


def text_column(place: str, columns: Sequence[str], strings: Sequence[str], wanted: str | None) -> str:
    """The column that was asked for, or one with a usual name, or the only one with strings."""
    if wanted is not None:
        if wanted not in columns:
            raise MeristemError(f"{place}: corpus.text: no column {wanted!r}{did_you_mean(wanted, columns)}")
        return wanted
    found = [name for name in USUAL if name in columns] or (list(strings) if len(strings) == 1 else [])
    if not found:
        shown = ", ".join(columns) or "none"
        raise MeristemError(f"{place}: which column holds the text? Columns: {shown}. Set corpus.text=COLUMN")
    return found[0]
