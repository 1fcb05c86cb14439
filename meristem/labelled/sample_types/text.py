"""Text classification and regression samples: a text with a label, several labels or a number."""

from __future__ import annotations

from typing import Any

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import LABEL_COLUMNS, TEXT_COLUMNS
from meristem.labelled.rows import RawRow
from meristem.labelled.sample_type import SampleType

FALSE_VALUES = {"none", "0", "0.0", "false", "no"}


class TextSample(SampleType):
    """{"text"} → a label, a list of labels, or a number."""

    gold_is_label = True

    def resolve_columns(self) -> None:
        """The label column first, since the remaining one may be the text."""
        self.label_column, self.flag_columns = self._find_label_columns()
        self.text_column = self._find_text_column()

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample."""
        text = cell_values.parse_text(self.require_cell(row, self.text_column), "text", row.location)
        return [Sample(inputs={"text": text}, gold=self.parse_gold(row), location=row.location)]

    def parse_gold(self, row: RawRow) -> Any:
        """The gold of a row; None if it is missing and not required."""
        if self.flag_columns:
            flags = {name: str(cell_values.parse_label(row.values.get(name))) for name in self.flag_columns}
            return [name for name, flag in flags.items() if flag.lower() not in FALSE_VALUES]
        gold = None if self.label_column is None else cell_values.parse_label(row.values.get(self.label_column))
        if gold is None and self.require_gold:
            raise self.missing_gold_error(row, "label", self.label_column)
        return gold

    def _find_label_columns(self) -> tuple[str | None, tuple[str, ...]]:
        """One label column, or several yes/no columns, one for each label (data.label=toxic,insult)."""
        configured_label = self.columns.settings.label
        if configured_label is not None and configured_label not in self.columns.names and "," in configured_label:
            names = [name.strip() for name in configured_label.split(",")]
            all_present = self.require_gold or all(name in self.columns.names for name in names)
            return None, tuple(self.columns.check_name(name, "label") for name in names) if all_present else ()
        candidates = (*LABEL_COLUMNS, self._shorter_of_two())
        column = self.gold_column("label", candidates, "the label", exclude=(self.columns.settings.text,))
        if column is not None and configured_label is None and self.require_gold:
            self.note_other_columns("labels", column, LABEL_COLUMNS)
        return column, ()

    def _find_text_column(self) -> str:
        label_columns = (self.label_column, *self.flag_columns)
        column = self.columns.find("text", TEXT_COLUMNS, label_columns)
        other_columns = [name for name in self.columns.names if name not in label_columns]
        if column is None and len(other_columns) == 1:
            return other_columns[0]
        return column if column is not None else self.columns.require("text", (), "the text")

    def _shorter_of_two(self) -> str:
        """Of two unnamed columns, the one with shorter, repeating values; "" if there is none."""
        names, rows = self.columns.names, self.columns.sample_rows
        if not self.columns.has_numbered_names or len(names) != 2 or not self.require_gold or len(rows) <= 2:
            return ""
        columns = [[str(row.values.get(name, "")) for row in rows] for name in names]
        sizes = [sum(map(len, column)) for column in columns]
        shorter = sizes.index(min(sizes))
        return names[shorter] if len(set(columns[shorter])) < len(columns[shorter]) else ""
