"""Multiple-choice samples: a context, choices, and the index of the correct one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import (
    CHOICE_COLUMN_STEMS,
    CHOICE_LIST_COLUMNS,
    CONTEXT_COLUMNS,
    GOLD_CHOICE_COLUMNS,
    QUESTION_COLUMNS,
)
from meristem.labelled.rows import RawRow, ReadNotes, RowError
from meristem.labelled.sample_type import SampleType


class ChoiceSample(SampleType):
    """{"text", "question", "choices"} → the index of the correct choice, from 0."""

    def resolve_columns(self) -> None:
        """Choices are a list in one column, or have one column each."""
        columns = self.columns
        self.choice_columns = self._find_choice_columns()
        self.label_column = self.gold_column(
            "label", GOLD_CHOICE_COLUMNS, "the correct choice", exclude=self.choice_columns
        )
        used_columns = (*self.choice_columns, self.label_column)
        self.text_column = columns.find("text", CONTEXT_COLUMNS, exclude=used_columns)
        self.question_column = columns.find("question", QUESTION_COLUMNS, exclude=(*used_columns, self.text_column))
        if self.text_column is None and self.question_column is None:
            raise columns.missing_column_error("text", "the text that the choices belong to")

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample; its gold is numbered as in the file until `finalize`."""
        text, question = (self._optional_text(row, column) for column in (self.text_column, self.question_column))
        if not text and not question:
            cell_values.parse_text(None, "text", row.location)
        names, choices = self._parse_choices(row)
        inputs = {"text": text or question, "question": question if text else "", "choices": choices}
        return [Sample(inputs=inputs, gold=self._gold_index(row, names, choices), location=row.location)]

    @classmethod
    def finalize(cls, splits: Sequence[list[Sample]], notes: ReadNotes) -> None:
        """Golds count from 1 if none is 0 and one equals the number of choices; convert them to indices from 0."""
        with_gold = [sample for samples in splits for sample in samples if sample.gold is not None]
        equals_number = any(sample.gold == len(sample.inputs["choices"]) for sample in with_gold)
        first_number = int(equals_number and all(sample.gold > 0 for sample in with_gold))
        if first_number:
            notes.add_message("correct choices are numbered from 1 in these files")
        for samples in splits:
            for index, sample in enumerate(samples):
                if sample.gold is None:
                    continue
                if not first_number <= sample.gold < len(sample.inputs["choices"]) + first_number:
                    raise MeristemError(
                        f"{sample.location}: choice {sample.gold} of {len(sample.inputs['choices'])} choices, "
                        f"numbered from {first_number}"
                    )
                samples[index] = replace(sample, gold=sample.gold - first_number)

    def _find_choice_columns(self) -> tuple[str, ...]:
        columns = self.columns
        if columns.settings.choices:
            return tuple(columns.check_name(name, "choices") for name in columns.settings.choices)
        by_lower_name = {name.lower(): name for name in columns.names}
        for name in CHOICE_LIST_COLUMNS:
            if name in by_lower_name:
                return (by_lower_name[name],)
        for stem in CHOICE_COLUMN_STEMS:
            numbered_names = sorted(name for name in by_lower_name if re.fullmatch(rf"{stem}[ _]?(\d|[a-z])", name))
            if len(numbered_names) > 1:
                return tuple(by_lower_name[name] for name in numbered_names)
        letters = [name for name in "abcde" if name in by_lower_name]
        if len(letters) > 1:
            return tuple(by_lower_name[name] for name in letters)
        raise columns.missing_column_error("choices", "the choices (a list, or a column for each: data.choices=[A,B])")

    def _optional_text(self, row: RawRow, column: str | None) -> str:
        value = row.values.get(column) if column else None
        return "" if cell_values.is_empty(value) else cell_values.parse_text(value, "text", row.location)

    def _parse_choices(self, row: RawRow) -> tuple[list[str], tuple[str, ...]]:
        """The labels of the choices (A, B, …), and their texts."""
        if len(self.choice_columns) > 1:
            cells = [row.values.get(column) for column in self.choice_columns]
            cells = [cell for index, cell in enumerate(cells) if not all(map(cell_values.is_empty, cells[index:]))]
            names = [column[-1] for column in self.choice_columns]
        else:
            value = cell_values.parse_list(self.require_cell(row, self.choice_columns[0]))
            names = [str(name) for name in value.get("label", ())] if isinstance(value, dict) else []
            cells = value.get("text", ()) if isinstance(value, dict) else value
        if not isinstance(cells, list | tuple) or len(cells) < 2:
            raise RowError(f"{row.location}: fewer than two choices")
        for number, cell in enumerate(cells, 1):
            if cell_values.is_empty(cell):
                raise RowError(f"{row.location}: choice {number} is empty")
        return names, tuple(cell_values.parse_text(cell, "choice", row.location) for cell in cells)

    def _gold_index(self, row: RawRow, names: list[str], choices: tuple[str, ...]) -> int | None:
        value: Any = cell_values.parse_label(row.values.get(self.label_column)) if self.label_column else None
        if value is None or str(value).startswith("-"):  # -1 in test sets with hidden labels
            if self.require_gold:
                raise self.missing_gold_error(row, "correct choice", self.label_column)
            return None
        answer = str(value)
        if re.fullmatch(r"\d+(\.0)?", answer) and answer not in choices:
            return int(float(answer))
        if answer in choices:
            return choices.index(answer)
        lower_names = [name.lower() for name in names]
        if answer.lower() in lower_names and lower_names[0] != "1":
            return lower_names.index(answer.lower())
        if len(answer) == 1 and answer.isalpha() and ord(answer.lower()) - ord("a") < len(choices):
            return ord(answer.lower()) - ord("a")
        raise RowError(f"{row.location}: {answer!r} is none of the choices, nor the number or letter of one")
