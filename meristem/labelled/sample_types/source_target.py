"""Sequence-to-sequence samples: a source text and its reference targets (translation, summary)."""

from __future__ import annotations

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import SOURCE_COLUMNS, TARGET_COLUMNS
from meristem.labelled.rows import RawRow
from meristem.labelled.sample_type import SampleType


class SourceTargetSample(SampleType):
    """{"source"} → reference texts; the first is trained on."""

    single_gold = False

    def resolve_columns(self) -> None:
        """Source and target; two unnamed columns are source and target in this order."""
        columns = self.columns
        two_unnamed = columns.has_numbered_names and len(columns.names) == 2
        candidates = ("2",) if two_unnamed else TARGET_COLUMNS
        self.target_column = self.gold_column("target", candidates, "the target text", exclude=(columns.settings.text,))
        self.source_column = columns.require(
            "text", ("1",) if two_unnamed else SOURCE_COLUMNS, "the source", exclude=(self.target_column,)
        )

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample."""
        source = cell_values.parse_text(self.require_cell(row, self.source_column), "source", row.location)
        references = (
            self.require_cell(row, self.target_column)
            if self.target_column and self.require_gold
            else row.values.get(self.target_column or "")
        )
        return [self.reference_sample({"source": source}, references, "target", row)]
