"""Rows of labelled data that cannot be used: all of them counted by reason, the first named."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from meristem.labelled.found import Flaw, Notes

LISTED = 5
"""Rows that an error spells out; the others are counted by reason."""
DETAIL = re.compile(r" \(.*\)|;.*", re.DOTALL)
NUMBER = re.compile(r"\b\d+\b(?!')")


def reason_of(message: str) -> tuple[str, str]:
    """Where a row stands, and what is wrong with it without what differs from row to row."""
    place, _, what = message.partition(": ")
    return place, NUMBER.sub("N", DETAIL.sub("", what))


@dataclass
class BadRows:
    """What is wrong with rows, by reason with the first places."""

    first: list[str] = field(default_factory=list)
    reasons: Notes = field(default_factory=Notes)

    @property
    def count(self) -> int:
        """All of them."""
        return self.reasons.counts.total()

    def add(self, flaw: Flaw) -> None:
        """One more row that cannot be used."""
        if len(self.first) < LISTED:
            self.first.append(str(flaw))
        place, reason = reason_of(str(flaw))
        self.reasons.add(reason, place)

    def message(self, setting: str, rows: int) -> str:
        """The error that lists them."""
        lines = [f"{setting}: {self.count:,} of {rows:,} rows cannot be used:", *(f"  {line}" for line in self.first)]
        if self.count > len(self.first):
            counts = ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.counts.most_common())
            lines.append(f"  and {self.count - len(self.first):,} more; in all: {counts}")
        return "\n".join([*lines, "Mend them, or leave them out with data.skip_bad=true"])

    def left_out(self, split: str) -> list[str]:
        """Sentences about rows that were left out."""
        return [f"left out of {split} (data.skip_bad), {line}" for line in self.reasons.sentences()]
