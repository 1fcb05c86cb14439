"""What travels from files to samples: rows with their places, and what was met on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from meristem.errors import MeristemError

NAMED = 3
"""Places that a sentence names; the others are only counted."""


class Flaw(MeristemError):
    """What is wrong with a row, where, and what to do about it."""

    row: Mapping[str, Any] = {}
    """The row, where it could be read."""


class Dropped(Exception):
    """Why no sample can be made of a row that is not wrong; it is passed over and counted."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class Found(NamedTuple):
    """One row as its file has it, by column, and where it stands: `file:line` or `file#row`."""

    values: dict[str, Any]
    place: str


class Rows(NamedTuple):
    """All rows of one source, read as they are asked for."""

    rows: Iterator[Found | Flaw]
    place: str
    """The source's name."""
    columns: tuple[str, ...] = ()
    """Its columns in order, where a header or a schema names them; else they are those its rows have."""
    used: tuple[str, ...] = ()
    """Settings that its format has already understood, so that they name no columns of these rows."""


@dataclass
class Notes:
    """What was dropped, mended or noticed, by reason, with the first places."""

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)
    """Sentences that are complete as they are."""
    gold_columns: dict[str, set[str | None]] = field(default_factory=dict)
    """Per setting (label, answers, …) the columns that golds were read from; None for one without a name."""

    def add(self, reason: str, place: str) -> None:
        """One more place where this was met."""
        self.counts[reason] += 1
        self.places.setdefault(reason, [])
        if len(self.places[reason]) < NAMED:
            self.places[reason].append(place)

    def say(self, sentence: str) -> None:
        """A sentence, once."""
        if sentence not in self.plain:
            self.plain.append(sentence)

    def sentences(self) -> list[str]:
        """What a person is told."""
        counted = [
            f"{reason}: {count:,} ({named(self.places[reason], count)})" for reason, count in self.counts.items()
        ]
        return [*self.plain, *counted]


def named(places: Sequence[str], count: int) -> str:
    """The first places, and how many there are besides."""
    shown = list(places[:NAMED])
    return ", ".join(shown) + (f" and {count - len(shown):,} more" if count > len(shown) else "")
