"""Every document is accounted for: read = kept + dropped, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from rich.table import Table
from rich.text import Text

from meristem.corpus.examples import Example, chosen, excerpt
from meristem.corpus.passages import pruned
from meristem.drawing.page import shortened

WARNINGS = 20
"""Warnings that are kept word for word; further ones are only counted."""

REASONS = 8
"""Lines of a kind in the table; a page has room for all."""

NAMED_FILES = 10_000
"""Files that are counted one by one; the rest share a line, so that a million files cost no memory."""

COUNTERS = (
    "dropped", "splits", "sources", "kinds", "repaired", "removed", "languages", "lengths", "passages", "rejected",
    "skipped", "damaged",
)


def moved(place: str, lines: int) -> str:
    """A place counted from the start of a range, counted from the start of its file."""
    name, _, line = place.rpartition(":")
    return f"{name}:{int(line) + lines}"


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
    """Documents a cleaning step changed, and files that were decoded from another encoding than UTF-8."""
    damaged: Counter[str] = field(default_factory=Counter)
    """Places whose bytes could not be decoded, so that U+FFFD stands there: lost, not repaired."""
    removed: Counter[str] = field(default_factory=Counter)
    """What steps took out of documents or replaced in them: lines, private strings."""
    languages: Counter[str] = field(default_factory=Counter)
    """Documents by language, where it was asked for; "" where it could not be told."""
    lengths: Counter[int] = field(default_factory=Counter)
    """Kept documents by the whole part of the binary logarithm of their characters: 9 stands for 512 to 1,023."""
    examples: dict[str, list[Example]] = field(default_factory=dict)
    """For each reason a few dropped documents: where they stand and how they begin."""
    passages: Counter[str] = field(default_factory=Counter)
    """Lines that stand in many kept documents, and in how many (`passages.py` says how exactly)."""
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
        """One more file that was not in UTF-8."""
        self.repaired[repair] += 1
        self.warn(f"{source}: {repair}")

    def damage(self, what: str, source: str, places: int) -> None:
        """Places of a file that could not be decoded."""
        self.damaged[what] += places
        self.warn(f"{source}: {places:,} {what}; U+FFFD stands there")

    def reject(self, reason: str, source: str) -> None:
        """One more file that cannot be read."""
        self.rejected[reason] += 1
        self.warn(f"{source}: {reason}")

    def drop(self, reason: str, documents: int = 1) -> None:
        """Documents that go no further."""
        if documents:
            self.dropped[reason] += documents

    def show(self, reason: str, dropped: Iterable[tuple[str, str]]) -> None:
        """Documents dropped for a reason, as (place, text): a few are kept as examples."""
        found = [(place, excerpt(text)) for place, text in dropped]
        if found:
            self.examples[reason] = chosen([*self.examples.get(reason, ()), *found])

    def keep(self, source: str, characters: Sequence[int]) -> None:
        """Documents of one source that stay, each with its characters."""
        if not characters:
            return
        self.kept += len(characters)
        self.characters += sum(characters)
        self.lengths.update(max(one, 1).bit_length() - 1 for one in characters)
        named = source in self.sources or len(self.sources) < NAMED_FILES
        self.sources[source if named else "(other files)"] += len(characters)

    def add(self, part: Account) -> None:
        """Take in the account of a part of the reading."""
        for name in ("read", "kept", "characters", "bytes", "lines", "unshown"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for name in COUNTERS:
            getattr(self, name).update(getattr(part, name))
        for reason, examples in part.examples.items():
            self.examples[reason] = chosen([*self.examples.get(reason, ()), *examples])
        self.passages = pruned(self.passages)
        for message in part.warnings:
            self.warn(message)

    def take(self) -> Account:
        """What was counted since it was last taken; counting begins anew."""
        part = Account(**{item.name: getattr(self, item.name) for item in fields(self)})
        vars(self).update(vars(Account()))
        return part

    def move(self, lines: int) -> None:
        """Count the places of examples from the start of their file, which has so many lines before this part."""
        for reason, examples in self.examples.items():
            self.examples[reason] = [(moved(place, lines), text) for place, text in examples]

    def plain(self) -> dict[str, Any]:
        """The account as JSON can write it."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """The account that `plain` gave, also after a way through JSON."""
        account = cls(**plain)
        for name in COUNTERS:
            setattr(account, name, Counter(plain.get(name, {})))
        account.lengths = Counter({int(power): count for power, count in plain.get("lengths", {}).items()})
        account.examples = {
            reason: [(place, text) for place, text in examples]
            for reason, examples in plain.get("examples", {}).items()
        }
        account.warnings = list(plain.get("warnings", ()))
        return account

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
        for reason, count in self.dropped.most_common(REASONS):
            table.add_row(Text(f"  dropped: {shortened(reason, 60)}"), f"{count:,}")
        if rest := self.dropped.total() - sum(count for _, count in self.dropped.most_common(REASONS)):
            table.add_row(f"  dropped for {len(self.dropped) - REASONS} other reasons", f"{rest:,}")
        table.add_row("documents kept", f"{self.kept:,}", style="bold")
        for kind, count in self.kinds.items():
            table.add_row(f"  {kind}", f"{count:,}")
        for split in ("train", "validation", "test"):
            table.add_row(f"  {split}", f"{self.splits[split]:,}")
        table.add_row("characters kept", f"{self.characters:,}", end_section=True)
        for label, counts in (("repaired", self.repaired), ("damaged", self.damaged), ("removed", self.removed),
                              ("files rejected", self.rejected), ("files skipped", self.skipped)):
            for reason, count in counts.most_common(REASONS):
                table.add_row(Text(f"{label}: {shortened(reason, 60)}"), f"{count:,}")
        return table
