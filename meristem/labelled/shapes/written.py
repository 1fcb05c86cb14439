"""A text, and what is to be written of it: its translation, its summary."""

from __future__ import annotations

from meristem.labelled import values
from meristem.labelled.columns import SOURCE, TARGET
from meristem.labelled.found import Found
from meristem.labelled.shape import Shape
from meristem.task import Sample


class Written(Shape):
    """{"source"} → references, the first of which is learned."""

    one_gold = False

    def look(self) -> None:
        """The target where it is wanted; two columns without names are source and target in this order."""
        columns = self.columns
        two = columns.unnamed and len(columns.names) == 2
        usual = ("2",) if two else TARGET
        self.target = self.right_column("target", usual, "the text to be written", besides=(columns.data.text,))
        self.source = columns.need("text", ("1",) if two else SOURCE, "the source", besides=(self.target,))

    def samples(self, found: Found) -> list[Sample]:
        """One sample."""
        source = values.text(self.cell(found, self.source), "source", found.place)
        right = self.cell(found, self.target) if self.target and self.gold else found.values.get(self.target or "")
        if values.nothing(right) and not self.gold:
            return [Sample(given={"source": source}, place=found.place)]
        return [Sample(given={"source": source}, gold=values.texts(right, "target", found.place), place=found.place)]
