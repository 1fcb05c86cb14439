"""Every document is accounted for: read = kept + dropped, by reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from rich.table import Table

WARNINGS = 20
"""Warnings that are kept word for word; further ones are only counted."""

NAMED_FILES = 10_000
"""Files that are counted one by one; the rest share a line, so that a million files cost no memory."""


@dataclass
class Account:
    """What became of everything that was read."""

    read: int = 0
    kept: int = 0
    characters: int = 0
    """Characters of the kept documents."""
    bytes: int = 0
    """Bytes read from disk, compressed as they lie there."""
    lines: int = 0
    """Lines of plain text passed."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Documents by the reason they were dropped for."""
    splits: Counter[str] = field(default_factory=Counter)
    """Kept documents by split."""
    sources: Counter[str] = field(default_factory=Counter)
    """Kept documents by file."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Kept documents that are more than plain text: pairs, pictures."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Documents a cleaning step changed, and files whose encoding was mended."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Files that could not be read at all, by reason."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Files passed over in folders, by ending."""
    warnings: list[str] = field(default_factory=list)
    unshown: int = 0
    """Warnings beyond those kept."""

    def warn(self, message: str) -> None:
        """Remember the first warnings; count the rest."""
        if len(self.warnings) < WARNINGS:
            self.warnings.append(message)
        else:
            self.unshown += 1

    def mend(self, repair: str, source: str) -> None:
        """One more file whose encoding had to be mended."""
        self.repaired[repair] += 1
        self.warn(f"{source}: {repair}")

    def reject(self, reason: str, source: str) -> None:
        """One more file that cannot be read."""
        self.rejected[reason] += 1
        self.warn(f"{source}: {reason}")

    def drop(self, reason: str, documents: int = 1) -> None:
        """Documents that go no further."""
        if documents:
            self.dropped[reason] += documents

    def keep(self, source: str, documents: int, characters: int) -> None:
        """Documents of one source that stay."""
        if not documents:
            return
        self.kept += documents
        self.characters += characters
        named = source in self.sources or len(self.sources) < NAMED_FILES
        self.sources[source if named else "(other files)"] += documents

    def add(self, part: Account) -> None:
        """Take in the account of a part of the reading."""
        for name in ("read", "kept", "characters", "bytes", "lines", "unshown"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for name in ("dropped", "splits", "sources", "kinds", "repaired", "rejected", "skipped"):
            getattr(self, name).update(getattr(part, name))
        for message in part.warnings:
            self.warn(message)

    def take(self) -> Account:
        """What was counted since it was last taken; counting begins anew."""
        part = Account(**{item.name: getattr(self, item.name) for item in fields(self)})
        vars(self).update(vars(Account()))
        return part

    def check(self) -> None:
        """Fail loudly if a document went missing."""
        gone = self.dropped.total()
        if self.read != self.kept + gone:
            raise AssertionError(f"documents went missing: read {self.read}, kept {self.kept}, dropped {gone}")
        if self.kept != self.splits.total():
            raise AssertionError(f"documents without a split: kept {self.kept}, split {self.splits.total()}")

    def summary(self) -> str:
        """One line: what was read, kept, dropped and rejected."""
        told = "".join(f" ({kind})" for kind in self.kinds)
        parts = [f"{self.read:,} documents read", f"{self.kept:,} kept{told}"]
        for word, counts in (("dropped", self.dropped), ("files rejected", self.rejected)):
            parts += [f"{count:,} {word} ({reason})" for reason, count in counts.most_common()]
        if self.skipped:
            endings = ", ".join(f"{ending} ({count:,})" for ending, count in self.skipped.most_common(8))
            parts.append(f"files skipped by ending: {endings}")
        return "; ".join(parts)

    def table(self) -> Table:
        """The account as a table for the terminal."""
        table = Table(title="Corpus", title_justify="left")
        table.add_column("what")
        table.add_column("count", justify="right")
        table.add_row("documents read", f"{self.read:,}")
        for reason, count in self.dropped.most_common():
            table.add_row(f"  dropped: {reason}", f"{count:,}")
        table.add_row("documents kept", f"{self.kept:,}", style="bold")
        for kind, count in self.kinds.items():
            table.add_row(f"  {kind}", f"{count:,}")
        for split in ("train", "validation", "test"):
            table.add_row(f"  {split}", f"{self.splits[split]:,}")
        table.add_row("characters kept", f"{self.characters:,}", end_section=True)
        for label, counts in (("repaired", self.repaired), ("files rejected", self.rejected),
                              ("files skipped", self.skipped)):
            for reason, count in counts.most_common():
                table.add_row(f"{label}: {reason}", f"{count:,}")
        return table
