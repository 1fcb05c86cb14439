"""What a shape is: rows of any file become samples of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from meristem.labelled.columns import Columns
from meristem.labelled.found import Flaw, Found, Notes
from meristem.task import Sample


class Shape:
    """Made once for a source, when its columns are known; its file in shapes/ says what its samples are."""

    one_gold: ClassVar[bool] = True
    """Whether the same given with another gold contradicts; texts may be written in many ways."""
    labels: ClassVar[bool] = False
    """Whether a gold is a label, of which every one should be kept when few samples are drawn."""

    def __init__(self, columns: Columns, *, gold: bool, notes: Notes) -> None:
        self.columns, self.gold, self.notes = columns, gold, notes
        self.gold_columns: dict[str, str] = {}
        """Per setting the column that what is right is read from."""
        self.look()

    def look(self) -> None:
        """Find the columns it needs."""
        raise NotImplementedError

    def samples(self, found: Found) -> list[Sample]:
        """What a row makes; raises Flaw where it is wrong and Dropped where it holds nothing."""
        raise NotImplementedError

    @classmethod
    def settle(cls, groups: Sequence[list[Sample]], notes: Notes) -> None:
        """Decide what only all samples together tell, and change them in place."""

    @classmethod
    def learned(cls, sample: Sample) -> list[Sample]:
        """What is learned from a training sample: itself."""
        return [sample]

    @classmethod
    def identity(cls, sample: Sample) -> str:
        """What two samples share that are the same to a reader: their texts but for case and white space."""
        return "\x1f".join(plain(value) for key, value in sample.given.items() if key != "id")

    def cell(self, found: Found, column: str) -> Any:
        """The value in a column that every row must have."""
        try:
            return found.values[column]
        except KeyError:
            there = ", ".join(found.values) or "nothing"
            raise Flaw(f"{found.place}: nothing in the column {column!r}; this row has {there}") from None

    def right_column(
        self, setting: str, usual: Sequence[str], what: str, besides: Sequence[str | None] = ()
    ) -> str | None:
        """The column of what is right: needed to learn from, elsewhere used where there is one."""
        if self.gold:
            self.gold_columns[setting] = self.columns.need(setting, usual, what, besides)
            return self.gold_columns[setting]
        wanted = getattr(self.columns.data, setting)
        absent = wanted is not None and wanted not in self.columns.names
        return None if absent else self.columns.find(setting, usual, besides)

    def unlabelled(self, found: Found, what: str, column: str | None) -> Flaw:
        """What to say of a row whose gold is missing."""
        shown = f" in the column {column!r}" if column else ""
        return Flaw(f"{found.place}: no {what}{shown}; give it one or take the line out")


def plain(value: Any) -> str:
    """A text, or texts one after the other, without case and with single spaces."""
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    return "\x1e".join(plain(one) for one in value) if isinstance(value, list | tuple) else str(value)
