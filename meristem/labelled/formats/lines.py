"""Plain text files with one input per line, to predict on."""

from __future__ import annotations

from collections.abc import Iterator

from meristem.corpus.read.source_kinds import FileSource
from meristem.labelled.formats import SourceSpec
from meristem.labelled.open_file import file_from_path, iter_lines
from meristem.labelled.rows import RawRow, ReadNotes, RowStream

COLUMN_BY_SAMPLE_TYPE = {"source_target": "source", "turns": "turns", "picture": "picture", "picture_prompt": "picture"}
CONSUMED_SETTINGS = ("text", "words", "turns", "picture", "label", "target", "intent")


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """Every line as a row, under the column name that the sample type looks for."""
    file = file_from_path(spec.path)
    column = COLUMN_BY_SAMPLE_TYPE.get(spec.sample_type, "text")
    return RowStream(_iter_rows(file, column, notes), file.name, (column,), consumed_settings=CONSUMED_SETTINGS)


def _iter_rows(file: FileSource, column: str, notes: ReadNotes) -> Iterator[RawRow]:
    for number, line in iter_lines(file, notes):
        yield RawRow({column: line}, f"{file.name}:{number}")
