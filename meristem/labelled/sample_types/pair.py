"""Sentence-pair samples: two texts with a label, labels or a score."""

from __future__ import annotations

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import PAIR_COLUMNS, TEXT_COLUMNS
from meristem.labelled.rows import RawRow
from meristem.labelled.sample_types.text import TextSample


class PairSample(TextSample):
    """{"text", "text_b"} → a label, a list of labels, or a number."""

    def resolve_columns(self) -> None:
        """Both texts by common pairs of column names, then the label."""
        self.text_column, self.text_b_column = self._find_text_columns()
        self.label_column, self.flag_columns = self._find_label_columns()

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample."""
        texts = [
            cell_values.parse_text(self.require_cell(row, name), "text", row.location)
            for name in (self.text_column, self.text_b_column)
        ]
        return [Sample(inputs={"text": texts[0], "text_b": texts[1]}, gold=self.parse_gold(row), location=row.location)]

    def _find_text_columns(self) -> tuple[str, str]:
        columns, data = self.columns, self.columns.settings
        by_lower_name = {name.lower(): name for name in columns.names}
        for first_name, second_name in PAIR_COLUMNS if data.text is None and data.text_b is None else ():
            if first_name in by_lower_name and second_name in by_lower_name:
                return by_lower_name[first_name], by_lower_name[second_name]
        partners = dict(PAIR_COLUMNS) | {second_name: first_name for first_name, second_name in PAIR_COLUMNS}
        second = data.text_b and columns.check_name(data.text_b, "text_b")
        partner = partners.get((data.text or second or "").lower(), "")
        first = columns.require("text", (partner, *TEXT_COLUMNS) if second else (), "the first text", exclude=(second,))
        return first, second or columns.require(
            "text_b", (partners.get(first.lower(), ""),), "the second text", (first,)
        )
