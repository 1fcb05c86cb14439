"""Invalid rows of a labelled data set: counted by reason, the first few listed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from meristem.labelled.rows import ReadNotes, RowError

MAX_LISTED_ROWS = 5
"""Rows that an error lists in full; the others are only counted by reason."""
DETAIL_PATTERN = re.compile(r" \(.*\)|;.*", re.DOTALL)
NUMBER_PATTERN = re.compile(r"\b\d+\b(?!')")


def split_reason(message: str) -> tuple[str, str]:
    """The location of a row, and its problem without the details that differ from row to row."""
    location, _, problem = message.partition(": ")
    return location, NUMBER_PATTERN.sub("N", DETAIL_PATTERN.sub("", problem))


@dataclass
class BadRows:
    """Collects row errors: the first messages, and the count and first locations of each reason."""

    first_messages: list[str] = field(default_factory=list)
    reasons: ReadNotes = field(default_factory=ReadNotes)

    @property
    def count(self) -> int:
        """Number of invalid rows."""
        return self.reasons.counts.total()

    def add(self, error: RowError) -> None:
        """Record one invalid row."""
        if len(self.first_messages) < MAX_LISTED_ROWS:
            self.first_messages.append(str(error))
        location, reason = split_reason(str(error))
        self.reasons.add(reason, location)

    def error_message(self, setting: str, rows: int) -> str:
        """The text of the error raised when invalid rows are not skipped."""
        heading = f"{setting}: {self.count:,} of {rows:,} rows are invalid:"
        lines = [heading, *(f"  {line}" for line in self.first_messages)]
        if self.count > len(self.first_messages):
            counts = ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.counts.most_common())
            lines.append(f"  and {self.count - len(self.first_messages):,} more; by reason: {counts}")
        return "\n".join([*lines, "Fix these rows, or skip them with data.skip_bad=true"])

    def skip_messages(self, split: str) -> list[str]:
        """Notices about rows that were skipped."""
        return [f"skipped in {split} (data.skip_bad), {line}" for line in self.reasons.sentences()]
