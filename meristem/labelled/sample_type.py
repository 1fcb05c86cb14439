"""Base class of sample types: each turns the rows of a labelled file into the samples of one kind of task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from meristem.config.registry import ComponentKind, Registry
from meristem.interfaces.sample import Sample
from meristem.interfaces.task_signature import InputField
from meristem.labelled import cell_values
from meristem.labelled.columns import ColumnResolver
from meristem.labelled.rows import RawRow, ReadNotes, RowError


class SampleType:
    """Parses the rows of one source; created when its columns are known. Sub-classes are in sample_types/."""

    single_gold: ClassVar[bool] = True
    """Whether equal inputs with different golds contradict each other; False where several texts are right."""
    gold_is_label: ClassVar[bool] = False
    """Whether golds are labels, so that holding out and subsampling are stratified by them."""

    def __init__(self, columns: ColumnResolver, *, require_gold: bool, notes: ReadNotes) -> None:
        self.columns, self.require_gold, self.notes = columns, require_gold, notes
        self.gold_columns: dict[str, str] = {}
        """Setting → the column that golds are read from."""
        self.resolve_columns()

    def resolve_columns(self) -> None:
        """Find the columns of this sample type; called once."""
        raise NotImplementedError

    def parse_row(self, row: RawRow) -> list[Sample]:
        """The samples of a row; raises RowError if it is invalid and SkipRow if it is empty."""
        raise NotImplementedError

    def add_fields(self, samples: list[Sample], fields: Sequence[InputField], row: RawRow) -> list[Sample]:
        """The samples with the inputs that a task reads from columns of its own; an optional one may be empty."""
        inputs = {}
        for field in fields:
            value = self.require_cell(row, field.column) if field.required else row.values.get(field.column)
            if field.required or not cell_values.is_empty(value):
                parse = cell_values.parse_texts if field.is_list else cell_values.parse_text
                inputs[field.name] = parse(value, field.name, row.location)
        return [replace(sample, inputs={**sample.inputs, **inputs}) for sample in samples] if inputs else samples

    @classmethod
    def finalize(cls, splits: Sequence[list[Sample]], notes: ReadNotes) -> None:
        """Modify samples in place once all are read, for what only all of them determine (tag scheme, numbering)."""

    @classmethod
    def training_samples(cls, sample: Sample) -> list[Sample]:
        """The samples to train on for one sample; the sample itself unless overridden."""
        return [sample]

    @classmethod
    def dedup_key(cls, sample: Sample) -> str:
        """A key that is equal for duplicates: the input texts without case and extra white space."""
        return "\x1f".join(normalize_text(value) for key, value in sample.inputs.items() if key != "id")

    def require_cell(self, row: RawRow, column: str) -> Any:
        """The value of a required column; raises RowError if the row lacks it."""
        try:
            return row.values[column]
        except KeyError:
            present_columns = ", ".join(row.values) or "nothing"
            raise RowError(f"{row.location}: no value in column {column!r}; this row has {present_columns}") from None

    def gold_column(
        self, setting: str, candidates: Sequence[str], description: str, exclude: Sequence[str | None] = ()
    ) -> str | None:
        """The column of the golds: required for training, otherwise None if there is none."""
        if self.require_gold:
            self.gold_columns[setting] = self.columns.require(setting, candidates, description, exclude)
            return self.gold_columns[setting]
        configured_name = getattr(self.columns.settings, setting)
        is_absent = configured_name is not None and configured_name not in self.columns.names
        return None if is_absent else self.columns.find(setting, candidates, exclude)

    def reference_sample(self, inputs: dict[str, Any], references: Any, field: str, row: RawRow) -> Sample:
        """A sample with its reference texts; without them where there are none and none are required."""
        if cell_values.is_empty(references) and not self.require_gold:
            return Sample(inputs=inputs, location=row.location)
        gold = cell_values.parse_texts(references, field, row.location)
        return Sample(inputs=inputs, gold=gold, location=row.location)

    def note_other_columns(self, kind: str, used: str, candidates: Sequence[str]) -> None:
        """Add a notice which column is used if there are several candidates."""
        excluded = (used, self.columns.settings.text)
        others = [name for name in self.columns.names if name.lower() in candidates and name not in excluded]
        if others:
            self.notes.add_message(
                f"{self.columns.source_name}: {kind} are read from {used!r}; other candidates: "
                f"{', '.join(others)} (data.label=…)"
            )

    def missing_gold_error(self, row: RawRow, description: str, column: str | None) -> RowError:
        """The error for a row without gold."""
        column_text = f" in column {column!r}" if column else ""
        return RowError(f"{row.location}: no {description}{column_text}; add it or remove the row")


def normalize_text(value: Any) -> str:
    """Case-folded text with single spaces; several texts are joined by a separator character."""
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    return "\x1e".join(normalize_text(item) for item in value) if isinstance(value, list | tuple) else str(value)


SAMPLE_TYPES = Registry(ComponentKind.SAMPLE_TYPE, SampleType)
"""Sample types by name."""
