"""What readers count: bytes, lines, repaired and rejected files, warnings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MAX_WARNINGS = 20
"""Warnings that are stored; further ones are only counted."""


@dataclass
class ReadCounts:
    """Counts of a pass over files, and the first warnings."""

    bytes: int = 0
    """Bytes read from disk, before decompression."""
    lines: int = 0
    """Lines of plain text read."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Records and documents that were changed, and files decoded from an encoding other than UTF-8."""
    damaged: Counter[str] = field(default_factory=Counter)
    """Places whose bytes could not be decoded and were replaced by U+FFFD."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Files that could not be read, by reason."""
    warnings: list[str] = field(default_factory=list)
    unshown: int = 0
    """Number of warnings beyond those stored."""

    def warn(self, message: str) -> None:
        """Store the first warnings; count the rest."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(message)
        else:
            self.unshown += 1

    def add_repaired_file(self, repair: str, source: str) -> None:
        """Count a file that was not in UTF-8."""
        self.repaired[repair] += 1
        self.warn(f"{source}: {repair}")

    def add_damaged_places(self, kind: str, source: str, places: int) -> None:
        """Count places of a file that could not be decoded."""
        self.damaged[kind] += places
        self.warn(f"{source}: {places:,} {kind}; replaced by U+FFFD")

    def reject_file(self, reason: str, source: str) -> None:
        """Count a file that cannot be read."""
        self.rejected[reason] += 1
        self.warn(f"{source}: {reason}")
