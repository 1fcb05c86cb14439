"""Two texts, and how they stand to each other."""

from __future__ import annotations

from meristem.labelled import values
from meristem.labelled.columns import PAIRS, TEXT
from meristem.labelled.found import Found
from meristem.labelled.shapes.text import Text
from meristem.task import Sample


class Pair(Text):
    """{"text", "text_b"} → a label, a list of labels, or a number."""

    def look(self) -> None:
        """Both texts by the names they have together, then the label."""
        self.text, self.text_b = self._texts()
        self.label, self.flags = self._label()

    def samples(self, found: Found) -> list[Sample]:
        """One sample."""
        both = [values.text(self.cell(found, name), "text", found.place) for name in (self.text, self.text_b)]
        return [Sample(given={"text": both[0], "text_b": both[1]}, gold=self.right(found), place=found.place)]

    def _texts(self) -> tuple[str, str]:
        columns, data = self.columns, self.columns.data
        known = {name.lower(): name for name in columns.names}
        for one, other in PAIRS:
            if one in known and other in known and data.text is None and data.text_b is None:
                return known[one], known[other]
        partners = dict(PAIRS) | {other: one for one, other in PAIRS}
        second = data.text_b and columns.there(data.text_b, "text_b")
        partner = partners.get((data.text or second or "").lower(), "")
        first = columns.need("text", (partner, *TEXT) if second else (), "the first text", besides=(second,))
        return first, second or columns.need("text_b", (partners.get(first.lower(), ""),), "the second text", (first,))
