"""What is written for: a prompt, what is known to be right for it, and whatever else stands in its row."""

from __future__ import annotations

from meristem.labelled import values
from meristem.labelled.columns import PROMPT, TARGET
from meristem.labelled.found import Found
from meristem.labelled.shape import Shape, plain
from meristem.task import Sample


class Prompt(Shape):
    """{"prompt", "columns"} → references, where there are any; rewards may read the other columns."""

    one_gold = False

    def look(self) -> None:
        """A lone column is the prompt; references are used where a column has their name."""
        columns = self.columns
        wanted = columns.data.target
        self.target = columns.need("target", (), "references") if wanted else columns.find("target", TARGET, ())
        alone = len(columns.names) == 1
        usual = (columns.names[0],) if alone else PROMPT
        self.prompt = columns.need("text", usual, "the prompt", besides=(self.target,))

    @classmethod
    def identity(cls, sample: Sample) -> str:
        """The prompt alone: however much is known about it, it is on one side of a split."""
        return plain(sample.given["prompt"])

    def samples(self, found: Found) -> list[Sample]:
        """One sample."""
        prompt = values.text(self.cell(found, self.prompt), "prompt", found.place)
        right = found.values.get(self.target or "")
        gold = () if values.nothing(right) else values.texts(right, "target", found.place)
        others = {name: value for name, value in found.values.items() if name not in (self.prompt, self.target)}
        return [Sample(given={"prompt": prompt, "columns": others}, gold=gold, place=found.place)]
