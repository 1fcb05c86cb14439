"""Raw rows of labelled files with their locations, row errors, and notes taken while reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from meristem.config.errors import MeristemError

MAX_LISTED_LOCATIONS = 3
"""Locations listed in a message; the others are only counted."""


class RowError(MeristemError):
    """An invalid row: what is wrong, where, and what to do."""

    row: Mapping[str, Any] = {}
    """The row, if it could be parsed."""


class SkipRow(Exception):
    """Raised for a valid row that gives no sample (an empty text); it is skipped and counted by reason."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class RawRow(NamedTuple):
    """One unparsed row by column, and its location: `file:line` or `file#row`."""

    values: dict[str, Any]
    location: str


class RowStream(NamedTuple):
    """The rows of one source, read lazily."""

    rows: Iterator[RawRow | RowError]
    source_name: str
    """Name of the source, for messages."""
    columns: tuple[str, ...] = ()
    """Columns in order, if a header or schema names them; else they are taken from the rows."""
    consumed_settings: tuple[str, ...] = ()
    """Data settings already applied by the format reader, so that they name no columns of these rows."""


@dataclass
class ReadNotes:
    """Notes taken while reading: rows dropped, values repaired and the like, by reason, with the first locations."""

    counts: Counter[str] = field(default_factory=Counter)
    locations: dict[str, list[str]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    """Complete messages, without count or location."""
    gold_columns: dict[str, set[str | None]] = field(default_factory=dict)
    """Setting (label, answers, …) → the columns that golds were read from; None for one without a name."""

    def add(self, reason: str, location: str) -> None:
        """Count one occurrence of a reason."""
        self.counts[reason] += 1
        self.locations.setdefault(reason, [])
        if len(self.locations[reason]) < MAX_LISTED_LOCATIONS:
            self.locations[reason].append(location)

    def add_message(self, message: str) -> None:
        """Add a message unless it is already there."""
        if message not in self.messages:
            self.messages.append(message)

    def sentences(self) -> list[str]:
        """All notes as text: messages first, then each reason with count and locations."""
        counted_reasons = []
        for reason, count in self.counts.items():
            listed = self.locations[reason]
            more = f" and {count - len(listed):,} more" if count > len(listed) else ""
            counted_reasons.append(f"{reason}: {count:,} ({', '.join(listed)}{more})")
        return [*self.messages, *counted_reasons]
