"""Counts of a corpus pass: documents read = kept + dropped, by reason, and rejected files and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from rich.table import Table
from rich.text import Text

from meristem.corpus.report.dropped_examples import DropExample, excerpt, select_examples
from meristem.corpus.report.repeated_lines import prune_counts
from meristem.data.read_counts import ReadCounts
from meristem.drawing.html_page import shorten_middle

MAX_TABLE_REASONS = 8
"""Rows per kind in the terminal table; the HTML report shows all."""

MAX_NAMED_FILES = 10_000
"""Files counted individually; the rest share one row, so that a million files cost no memory."""


def shift_line_number(location: str, lines: int) -> str:
    """A `file:line` location counted from the start of a range, as one counted from the start of its file."""
    name, _, line = location.rpartition(":")
    return f"{name}:{int(line) + lines}"


@dataclass
class CorpusAccount(ReadCounts):
    """Counts of everything that was read, and what happened to it."""

    read: int = 0
    kept: int = 0
    characters: int = 0
    """Characters of the kept documents."""
    planted: int = 0
    """Canaries planted into the training split; they are in none of the other counts."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Dropped documents by reason."""
    splits: Counter[str] = field(default_factory=Counter)
    """Kept documents by split."""
    sources: Counter[str] = field(default_factory=Counter)
    """Kept documents by file."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Kept documents that are not plain text: pairs, captioned images."""
    removed: Counter[str] = field(default_factory=Counter)
    """What steps removed or replaced: boilerplate lines, personal data."""
    languages: Counter[str] = field(default_factory=Counter)
    """Documents by language, if identified; "" if it could not be determined."""
    lengths: Counter[int] = field(default_factory=Counter)
    """Kept documents by floor(log2(characters)): 9 stands for 512 to 1,023."""
    examples: dict[str, list[DropExample]] = field(default_factory=dict)
    """A few dropped documents per reason: their location and beginning."""
    passages: Counter[str] = field(default_factory=Counter)
    """Lines that occur in many kept documents, and in how many (for the accuracy see `repeated_lines.py`)."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Files skipped in folders, by extension."""

    def drop(self, reason: str, documents: int = 1) -> None:
        """Count dropped documents."""
        if documents:
            self.dropped[reason] += documents

    def add_examples(self, reason: str, dropped: Iterable[tuple[str, str]]) -> None:
        """Store a few of the documents dropped for a reason, given as (location, text), as examples."""
        excerpts = [(location, excerpt(text)) for location, text in dropped]
        if excerpts:
            self.examples[reason] = select_examples([*self.examples.get(reason, ()), *excerpts])

    def keep(self, source: str, characters: Sequence[int]) -> None:
        """Count kept documents of one source, given the characters of each."""
        if not characters:
            return
        self.kept += len(characters)
        self.characters += sum(characters)
        self.lengths.update(max(length, 1).bit_length() - 1 for length in characters)
        is_named = source in self.sources or len(self.sources) < MAX_NAMED_FILES
        self.sources[source if is_named else "(other files)"] += len(characters)

    def merge(self, part: CorpusAccount) -> None:
        """Add the counts of another part of the pass."""
        for name in ("read", "kept", "characters", "planted", "bytes", "lines", "unshown"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for name in self._counter_fields():
            getattr(self, name).update(getattr(part, name))
        for reason, examples in part.examples.items():
            self.examples[reason] = select_examples([*self.examples.get(reason, ()), *examples])
        self.passages = prune_counts(self.passages)
        for message in part.warnings:
            self.warn(message)

    def pop_counts(self) -> CorpusAccount:
        """The counts since the last call; starts again from zero."""
        part = CorpusAccount(**{item.name: getattr(self, item.name) for item in fields(self)})
        vars(self).update(vars(CorpusAccount()))
        return part

    def shift_line_numbers(self, lines: int) -> None:
        """Add the number of lines before this part to the line numbers of examples."""
        for reason, examples in self.examples.items():
            self.examples[reason] = [(shift_line_number(location, lines), text) for location, text in examples]

    def to_dict(self) -> dict[str, Any]:
        """The counts as a dictionary for JSON; `planted` only where canaries were planted."""
        counts = {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}
        return {name: value for name, value in counts.items() if name != "planted" or value}

    @classmethod
    def from_dict(cls, fields_dict: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also after a round trip through JSON."""
        account = cls(**fields_dict)
        for name in cls._counter_fields():
            setattr(account, name, Counter(fields_dict.get(name, {})))
        account.lengths = Counter({int(power): count for power, count in fields_dict.get("lengths", {}).items()})
        account.examples = {
            reason: [(location, text) for location, text in examples]
            for reason, examples in fields_dict.get("examples", {}).items()
        }
        account.warnings = list(fields_dict.get("warnings", ()))
        return account

    @classmethod
    def _counter_fields(cls) -> list[str]:
        return [item.name for item in fields(cls) if item.default_factory is Counter]

    def check_totals(self) -> None:
        """Raise an error if the totals do not add up."""
        num_dropped = self.dropped.total()
        if self.read != self.kept + num_dropped:
            raise AssertionError(f"documents are missing: read {self.read}, kept {self.kept}, dropped {num_dropped}")
        if self.kept != self.splits.total():
            raise AssertionError(f"documents without a split: kept {self.kept}, split {self.splits.total()}")

    def summary(self) -> str:
        """One line: what was read, kept, dropped and rejected."""
        kind_notes = "".join(f" ({kind})" for kind in self.kinds)
        parts = [f"{self.read:,} documents read", f"{self.kept:,} kept{kind_notes}"]
        for word, counts in (("dropped", self.dropped), ("files rejected", self.rejected)):
            parts += [f"{count:,} {word} ({reason})" for reason, count in counts.most_common()]
        if self.planted:
            parts.append(f"{self.planted:,} canaries planted")
        if self.skipped:
            endings = ", ".join(f"{extension} ({count:,})" for extension, count in self.skipped.most_common(8))
            parts.append(f"files skipped by extension: {endings}")
        return "; ".join(parts)

    def table(self) -> Table:
        """The account as a table for the terminal."""
        table = Table(title="Corpus", title_justify="left")
        table.add_column("what")
        table.add_column("count", justify="right")
        table.add_row("documents read", f"{self.read:,}")
        for reason, count in self.dropped.most_common(MAX_TABLE_REASONS):
            table.add_row(Text(f"  dropped: {shorten_middle(reason, 60)}"), f"{count:,}")
        if other_count := self.dropped.total() - sum(count for _, count in self.dropped.most_common(MAX_TABLE_REASONS)):
            table.add_row(f"  dropped for {len(self.dropped) - MAX_TABLE_REASONS} other reasons", f"{other_count:,}")
        table.add_row("documents kept", f"{self.kept:,}", style="bold")
        for kind, count in self.kinds.items():
            table.add_row(f"  {kind}", f"{count:,}")
        for split in ("train", "validation", "test"):
            table.add_row(f"  {split}", f"{self.splits[split]:,}")
        table.add_row("characters kept", f"{self.characters:,}", end_section=not self.planted)
        if self.planted:
            table.add_row("canaries planted into train, not counted above", f"{self.planted:,}", end_section=True)
        for label, counts in (
            ("repaired", self.repaired),
            ("damaged", self.damaged),
            ("removed", self.removed),
            ("files rejected", self.rejected),
            ("files skipped", self.skipped),
        ):
            for reason, count in counts.most_common(MAX_TABLE_REASONS):
                table.add_row(Text(f"{label}: {shorten_middle(reason, 60)}"), f"{count:,}")
        return table
