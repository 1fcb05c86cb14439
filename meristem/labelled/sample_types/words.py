"""Sequence labelling samples (named entities, parts of speech): words with a tag each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meristem.data.text_units import join_words, locate_words, split_at_spaces
from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import TAG_COLUMNS, TEXT_COLUMNS, WORD_COLUMNS
from meristem.labelled.rows import RawRow, ReadNotes, RowError, SkipRow
from meristem.labelled.sample_type import SampleType
from meristem.labelled.tag_schemes import are_entity_tags, detect_tag_scheme, to_bio


class WordsSample(SampleType):
    """{"words", "text", "offsets"} → a tag for each word; entity tags are converted to BIO."""

    def resolve_columns(self) -> None:
        """Words may be a list, or a text split at white space; tags likewise."""
        columns = self.columns
        self.tags_column = self.gold_column("label", TAG_COLUMNS, "the tags")
        words = columns.find("words", WORD_COLUMNS, exclude=(self.tags_column,))
        text = columns.find("text", TEXT_COLUMNS, exclude=(self.tags_column, words))
        self.text_column = text
        self.words_column = words or text or columns.require("words", (), "the words")
        if self.tags_column and columns.settings.label is None:
            self.note_other_columns("tags", self.tags_column, TAG_COLUMNS)

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample."""
        inputs = self.parse_inputs(row)
        return [Sample(inputs=inputs, gold=self.parse_tags(row, len(inputs["words"])), location=row.location)]

    def parse_inputs(self, row: RawRow) -> dict[str, Any]:
        """The words, their text, and their offsets in it."""
        value = cell_values.parse_list(self.require_cell(row, self.words_column))
        if isinstance(value, str):
            text, (words, offsets) = value, split_at_spaces(value)
        else:
            words = tuple(str(word) for word in value or ())
            text, offsets = self._text_and_offsets(row, words)
        if not words:
            raise SkipRow("no words")
        if not all(word and not word.isspace() for word in words):
            raise RowError(f"{row.location}: word {next(n for n, w in enumerate(words, 1) if not w.strip())} is empty")
        return {"words": words, "text": text, "offsets": offsets}

    def parse_tags(self, row: RawRow, num_words: int) -> tuple[str, ...] | None:
        """A tag for each word; None if tags are missing and not required."""
        value = cell_values.parse_list(row.values.get(self.tags_column)) if self.tags_column else None
        if value is None or cell_values.is_empty(value):
            if self.require_gold:
                raise self.missing_gold_error(row, "tags", self.tags_column)
            return None
        parts = value.split() if isinstance(value, str) else value
        if any(cell_values.is_empty(part) for part in parts):
            raise self.missing_gold_error(row, "tag for a word", self.tags_column)
        if len(parts) != num_words:
            raise RowError(f"{row.location}: {num_words} words, but {len(parts)} tags")
        return tuple(str(part).strip() for part in parts)

    def _text_and_offsets(self, row: RawRow, words: tuple[str, ...]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The text column and the word offsets, if the words are in it in order; else the words joined."""
        text = row.values.get(self.text_column) if self.text_column else None
        offsets = locate_words(words, text) if isinstance(text, str) else None
        if isinstance(text, str) and offsets is not None:
            return text, offsets
        if isinstance(text, str):
            self.notes.add("texts do not contain their words in order; the words are joined instead", row.location)
        return join_words(words)

    @classmethod
    def gold_tags(cls, sample: Sample) -> tuple[str, ...]:
        """The tags of a sample."""
        return tuple(sample.gold or ())

    @classmethod
    def with_tags(cls, sample: Sample, tags: tuple[str, ...]) -> Sample:
        """The sample with its tags replaced."""
        return replace(sample, gold=tags)

    @classmethod
    def finalize(cls, splits: Sequence[list[Sample]], notes: ReadNotes) -> None:
        """Detect the tag scheme from all tags and convert it to BIO; tags that mark no entities are unchanged."""
        golds = [cls.gold_tags(sample) for samples in splits for sample in samples if sample.gold is not None]
        if not are_entity_tags({tag for tags in golds for tag in tags}):
            return
        tag_scheme, num_changed = detect_tag_scheme(golds), 0
        for samples in splits:
            for index, sample in enumerate(samples):
                tags = cls.gold_tags(sample)
                if sample.gold is not None and (bio_tags := to_bio(tags)) != tags:
                    samples[index] = cls.with_tags(sample, bio_tags)
                    num_changed += 1
        if num_changed:
            notes.add_message(
                f"tags use the {tag_scheme} scheme and were converted to BIO (samples changed: {num_changed:,})"
            )

    @classmethod
    def dedup_key(cls, sample: Sample) -> str:
        """The words, independent of how they are joined."""
        return "\x1e".join(sample.inputs["words"]).casefold()
