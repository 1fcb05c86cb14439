"""JSON lines files: one object per line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem.corpus.read.source_kinds import FileSource
from meristem.labelled.formats import SourceSpec
from meristem.labelled.open_file import file_from_path, iter_lines
from meristem.labelled.rows import RawRow, ReadNotes, RowError, RowStream
from meristem.utils import untrusted_files


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """The objects of a file."""
    file = file_from_path(spec.path)
    return RowStream(_iter_rows(file, notes), file.name)


def _iter_rows(file: FileSource, notes: ReadNotes) -> Iterator[RawRow | RowError]:
    for number, line in iter_lines(file, notes):
        if not line or line.isspace():
            continue
        location = f"{file.name}:{number}"
        try:
            record = untrusted_files.parse_json_line(line)
        except ValueError as error:
            yield RowError(f"{location}: broken JSON ({error})")
            continue
        if isinstance(record, dict):
            yield RawRow(flatten_translation(record), location)
        else:
            yield RowError(f"{location}: expected an object with columns, not a {type(record).__name__}")


def flatten_translation(record: dict[str, Any]) -> dict[str, Any]:
    """A record with each language under `translation` (the `datasets` layout) as a column of its own."""
    translations = record.get("translation")
    return {**translations, **record} if isinstance(translations, dict) else record
