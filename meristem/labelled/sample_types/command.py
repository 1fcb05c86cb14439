"""Intent-and-slot samples: words with a slot tag each, and an intent."""

from __future__ import annotations

from dataclasses import replace

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import INTENT_COLUMNS
from meristem.labelled.rows import RawRow
from meristem.labelled.sample_types.words import WordsSample


class CommandSample(WordsSample):
    """{"words", "text", "offsets"} → (intent, tags)."""

    def resolve_columns(self) -> None:
        """The intent column, besides words and tags."""
        super().resolve_columns()
        self.intent_column = self.gold_column("intent", INTENT_COLUMNS, "the intent", exclude=(self.tags_column,))

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample."""
        inputs = self.parse_inputs(row)
        tags = self.parse_tags(row, len(inputs["words"]))
        intent = cell_values.parse_label(row.values.get(self.intent_column)) if self.intent_column else None
        if self.require_gold and intent is None:
            raise self.missing_gold_error(row, "intent", self.intent_column)
        gold = None if intent is None or tags is None else (str(intent), tags)
        return [Sample(inputs=inputs, gold=gold, location=row.location)]

    @classmethod
    def gold_tags(cls, sample: Sample) -> tuple[str, ...]:
        """The tags of a sample."""
        return tuple(sample.gold[1]) if sample.gold else ()

    @classmethod
    def with_tags(cls, sample: Sample, tags: tuple[str, ...]) -> Sample:
        """The sample with its tags replaced."""
        return replace(sample, gold=(sample.gold[0], tags))
