"""Prompts for reinforcement learning: a prompt, its reference texts, and the other columns of its row."""

from __future__ import annotations

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import PROMPT_COLUMNS, TARGET_COLUMNS
from meristem.labelled.rows import RawRow
from meristem.labelled.sample_type import SampleType, normalize_text


class PromptSample(SampleType):
    """{"prompt", "columns"} → reference texts, if there are any; rewards may read the other columns."""

    single_gold = False

    def resolve_columns(self) -> None:
        """A single column is the prompt; references are optional."""
        columns = self.columns
        self.target_column = columns.find("target", TARGET_COLUMNS)
        single_column = len(columns.names) == 1
        candidates = (columns.names[0],) if single_column else PROMPT_COLUMNS
        self.prompt_column = columns.require("text", candidates, "the prompt", exclude=(self.target_column,))

    @classmethod
    def dedup_key(cls, sample: Sample) -> str:
        """The prompt alone, so that equal prompts are on the same side of a split whatever their references."""
        return normalize_text(sample.inputs["prompt"])

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample."""
        prompt = cell_values.parse_text(self.require_cell(row, self.prompt_column), "prompt", row.location)
        references = row.values.get(self.target_column or "")
        gold = () if cell_values.is_empty(references) else cell_values.parse_texts(references, "target", row.location)
        other_columns = {
            name: value for name, value in row.values.items() if name not in (self.prompt_column, self.target_column)
        }
        return [Sample(inputs={"prompt": prompt, "columns": other_columns}, gold=gold, location=row.location)]
