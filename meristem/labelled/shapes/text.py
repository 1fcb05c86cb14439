"""A text and its label, its labels or its number."""

from __future__ import annotations

from typing import Any

from meristem.labelled import values
from meristem.labelled.columns import LABEL, TEXT
from meristem.labelled.found import Found
from meristem.labelled.shape import Shape
from meristem.task import Sample

OFF = {"none", "0", "0.0", "false", "no"}


class Text(Shape):
    """{"text"} → a label, a list of labels, or a number."""

    labels = True

    def look(self) -> None:
        """The label's column first, since what is left may be the text's."""
        self.label, self.flags = self._label()
        self.text = self._text()

    def samples(self, found: Found) -> list[Sample]:
        """One sample."""
        text = values.text(self.cell(found, self.text), "text", found.place)
        return [Sample(given={"text": text}, gold=self.right(found), place=found.place)]

    def right(self, found: Found) -> Any:
        """The gold of a row; None where it is not asked for and not there."""
        if self.flags:
            return [name for name in self.flags if str(values.label(found.values.get(name))).lower() not in OFF]
        gold = None if self.label is None else values.label(found.values.get(self.label))
        if gold is None and self.gold:
            raise self.unlabelled(found, "label", self.label)
        return gold

    def _label(self) -> tuple[str | None, tuple[str, ...]]:
        """One column, or several that each say yes or no to a label of their own (data.label=toxic,insult)."""
        wanted = self.columns.data.label
        if wanted is not None and wanted not in self.columns.names and "," in wanted:
            names = [name.strip() for name in wanted.split(",")]
            there = self.gold or all(name in self.columns.names for name in names)
            return None, tuple(self.columns.there(name, "label") for name in names) if there else ()
        usual = (*LABEL, self._shorter_of_two())
        found = self.right_column("label", usual, "the label", besides=(self.columns.data.text,))
        if found is not None and wanted is None and self.gold:
            _mention_others(self, found)
        return found, ()

    def _text(self) -> str:
        besides = (self.label, *self.flags)
        found = self.columns.find("text", TEXT, besides)
        left = [name for name in self.columns.names if name not in besides]
        if found is None and len(left) == 1:
            return left[0]
        return found if found is not None else self.columns.need("text", (), "the text")

    def _shorter_of_two(self) -> str:
        """Of two columns without names, the one whose values are shorter and come again."""
        if not (self.columns.unnamed and len(self.columns.names) == 2 and self.gold and len(self.columns.first) > 2):
            return ""
        columns = [[str(one.values.get(name, "")) for one in self.columns.first] for name in self.columns.names]
        sizes = [sum(map(len, column)) for column in columns]
        shorter = sizes.index(min(sizes))
        return self.columns.names[shorter] if len(set(columns[shorter])) < len(columns[shorter]) else ""


def _mention_others(shape: Text, taken: str) -> None:
    """Say which label was taken where there are several that it could have been."""
    besides = (taken, shape.columns.data.text)
    others = [name for name in shape.columns.names if name.lower() in LABEL and name not in besides]
    if others:
        shape.notes.say(
            f"{shape.columns.place}: labels are taken from {taken!r}; there is also {', '.join(others)} (data.label=…)"
        )
