"""Delimited tables: CSV, TSV, and their spreadsheet variants; dialect and header are detected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from meristem.data.byte_stream import ByteStream
from meristem.data.csv_dialect import (
    SAMPLED_ROWS,
    RowLines,
    TableRow,
    column_names,
    column_numbers,
    detect_dialect,
    is_header,
    is_separator_line,
    split_rows,
)
from meristem.data.encoding import decode_stream
from meristem.data.formats.lines import line_too_long, number_lines
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.sources import FileSource

REJOINED = "row with a delimiter in its last column"


class TableFormat(FileFormat):
    """A delimited table; without a header, columns are named 1, 2, 3, …"""

    suffixes = (".csv", ".tsv", ".tab")

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        stream = ByteStream(file, counts)
        texts = decode_stream(stream, counts)
        head = next(texts)
        self._texts = chain([head], texts)
        lines = head.split("\n")
        numbered = enumerate(lines if stream.head_is_all or len(lines) == 1 else lines[:-1], 1)
        head_lines = [(number, line) for number, line in numbered if line.strip()]
        self._dialect = detect_dialect([line for _, line in head_lines], file.table_extension)
        rows = split_rows((line for _, line in head_lines), self._dialect, strict=options.strict_quotes)
        sample = [row for row in islice(rows, SAMPLED_ROWS) if isinstance(row, list)]
        has_separator_line = bool(sample) and is_separator_line(sample[0], self._dialect)
        sample = sample[1:] if has_separator_line else sample
        self.has_header = is_header(sample, options.known_columns) if options.header is None else options.header
        self.columns = column_names(sample[0]) if self.has_header and sample else column_numbers(sample)
        self.text_columns = self.columns
        if sample:
            self.columns_location = f"{self.name}:{head_lines[min(has_separator_line, len(head_lines) - 1)][0]}"

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The rows; those that lack one of `columns`, or have more cells than the table, are bad records.

        A row with more cells is repaired where that loses nothing: if the last column is one of `columns`, and if
        there is only one column, the rest belongs to it.
        """
        header_pending = self.has_header
        for row in self._iter_rows():
            if isinstance(row, BadRecord):
                yield row
            elif header_pending:
                header_pending = False
            else:
                yield self._parse_row(row[0], row[1], columns)

    def _iter_rows(self) -> Iterator[tuple[TableRow, str] | BadRecord]:
        """Rows that are not blank, with their locations."""
        lines = RowLines(number_lines(self._texts))
        at_start = True
        for row in split_rows(lines, self._dialect, strict=self.options.strict_quotes):
            location = f"{self.name}:{lines.first_line}"
            lines.first_line = 0
            yield from self._overlong_lines(lines)
            if isinstance(row, str):
                detail = f"a quote that is not closed or not doubled ({row}); fix it, or export the table again"
                yield BadRecord("broken row", location, detail)
            elif row not in ([], [""]) and not (at_start and is_separator_line(row, self._dialect)):
                yield row, location
            at_start = at_start and row in ([], [""])
        yield from self._overlong_lines(lines)

    def _overlong_lines(self, lines: RowLines) -> Iterator[BadRecord]:
        for number in lines.overlong:
            yield line_too_long(f"{self.name}:{number}")
        lines.overlong.clear()

    def _parse_row(self, row: TableRow, location: str, columns: Sequence[str] | None) -> Record | BadRecord:
        width = len(self.columns)
        if len(row) > width and (width == 1 or any(row[width:])):
            if width > 1 and (columns is None or self.columns[-1] not in columns):
                named_by = f"the header has {width} columns" if self.has_header else f"the rows before have {width}"
                return BadRecord("more cells than columns", location, f"{len(row)} cells, but {named_by}")
            self.counts.repaired[REJOINED] += 1
            row = [*row[: width - 1], self._dialect.delimiter.join(row[width - 1 :])]
        values = dict(zip(self.columns, row, strict=False))
        if columns is not None and any(name not in values for name in columns):
            return BadRecord("row too short", location)
        return Record(values, location)
