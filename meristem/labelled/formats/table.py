"""CSV and TSV files: dialect and header are detected."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from meristem.config.errors import MeristemError
from meristem.corpus.read.csv_dialect import (
    SAMPLED_ROWS,
    RowLines,
    TableDialect,
    column_names,
    column_numbers,
    detect_dialect,
    is_header,
    is_separator_line,
    split_rows,
)
from meristem.corpus.read.source_kinds import FileSource
from meristem.labelled.columns import KNOWN_COLUMN_NAMES
from meristem.labelled.formats import SourceSpec
from meristem.labelled.open_file import file_from_path, iter_lines, read_head
from meristem.labelled.rows import RawRow, ReadNotes, RowError, RowStream
from meristem.labelled.settings import DataSettings


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """Rows by the column names of the header, or by column number if there is no header."""
    file = file_from_path(spec.path)
    head_lines = [line for line in read_head(file).split("\n") if line.strip()]
    if not head_lines:
        raise MeristemError(f"{file.name}: no lines in this file")
    dialect = detect_dialect(head_lines, file.extension)
    first_rows = [row for row in islice(split_rows(iter(head_lines), dialect), SAMPLED_ROWS) if isinstance(row, list)]
    first_rows = first_rows[1:] if first_rows and is_separator_line(first_rows[0], dialect) else first_rows
    has_header = (
        is_header(first_rows, _known_names(spec.settings)) if spec.settings.header is None else spec.settings.header
    )
    columns = column_names(first_rows[0]) if has_header and first_rows else column_numbers(first_rows)
    return RowStream(_iter_rows(file, dialect, columns, has_header, notes), file.name, columns)


def _known_names(settings: DataSettings) -> set[str]:
    """Names by which a header is recognised: common ones, and those in the settings."""
    configured_names = {str(value).lower() for value in settings.model_dump().values() if isinstance(value, str)}
    return {*KNOWN_COLUMN_NAMES, *(name for name in configured_names if not name.isdigit())}


def _iter_rows(
    file: FileSource, dialect: TableDialect, columns: tuple[str, ...], has_header: bool, notes: ReadNotes
) -> Iterator[RawRow | RowError]:
    row_lines = RowLines(iter_lines(file, notes))
    header_pending, at_start = has_header, True
    for row in split_rows(row_lines, dialect):
        location = f"{file.name}:{row_lines.first_line}"
        row_lines.first_line = 0
        if isinstance(row, str):
            yield RowError(
                f"{location}: a quote that is not closed or not doubled ({row}); fix it, or export the table again"
            )
            continue
        if row in ([], [""]) or (at_start and is_separator_line(row, dialect)):
            continue
        at_start = False
        if header_pending:
            header_pending = False
        elif has_header and len(columns) == 1:  # a single text column may contain the delimiter
            yield RawRow({columns[0]: dialect.delimiter.join(row)}, location)
        elif has_header and len(row) > len(columns) and any(row[len(columns) :]):
            yield RowError(f"{location}: {len(row)} cells, but the header has {len(columns)} columns")
        else:
            yield RawRow(dict(zip(columns, row, strict=False)), location)
