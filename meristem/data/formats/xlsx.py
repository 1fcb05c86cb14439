"""Excel workbooks: the rows of the first sheet."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from itertools import chain, islice
from typing import Any

from meristem.data.byte_stream import UnreadableFileError
from meristem.data.compression import MAX_RATIO, RATIO_ERROR, UNCHECKED_BYTES, TruncatedFileError
from meristem.data.csv_dialect import SAMPLED_ROWS, column_names, column_numbers, is_header
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.seekable_file import open_seekable
from meristem.data.sources import FileSource
from meristem.utils.optional_packages import require_module

ROWS_ERROR = "damaged Excel file"


class XlsxFormat(FileFormat):
    """A sheet as a table; without a header, columns are named 1, 2, 3, … Formulas count with their stored values."""

    suffixes = (".xlsx", ".xlsm")
    is_text = False
    only_named = True

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        openpyxl = require_module("openpyxl", "reading .xlsx", "data")
        self._handle = open_seekable(file, counts, (b"PK\x03\x04",), "an Excel workbook")
        self._check_size(file)
        try:
            self._book = openpyxl.load_workbook(self._handle, read_only=True, data_only=True, keep_links=False)
            sheet = next((one for one in self._book.worksheets if one.sheet_state == "visible"), None)
            if sheet is None:
                raise UnreadableFileError("no visible sheet")
            sheet.reset_dimensions()  # a stored size may be wrong
            rows = self._iter_rows(sheet)
            head = list(islice(rows, SAMPLED_ROWS))
        except (UnreadableFileError, TruncatedFileError):
            raise
        except Exception:  # the library raises whatever its XML and zip readers raise
            raise UnreadableFileError(ROWS_ERROR) from None
        if len(self._book.worksheets) > 1:
            counts.warn(f"{self.name}: {len(self._book.worksheets)} sheets; the first, {sheet.title!r}, is read")
        self._rows = chain(head, rows)
        sample = [[str(cell) for cell in row] for _, row in head]
        self.has_header = is_header(sample, options.known_columns) if options.header is None else options.header
        self.columns = column_names(sample[0]) if self.has_header and sample else column_numbers(sample)
        self.text_columns = self.columns
        if head:
            self.columns_location = f"{self.name}#{head[0][0]}"

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The rows, located at their numbers in the sheet."""
        header_pending = self.has_header
        with self._handle:
            for number, row in self._rows:
                if header_pending:
                    header_pending = False
                    continue
                if any(cell != "" for cell in row[len(self.columns) :]):
                    detail = f"{len(row)} cells, but the header has {len(self.columns)} columns"
                    yield BadRecord("more cells than columns", f"{self.name}#{number}", detail)
                    continue
                cells = [*row, *[""] * (len(self.columns) - len(row))]
                yield Record(dict(zip(self.columns, cells, strict=False)), f"{self.name}#{number}")

    def _iter_rows(self, sheet: Any) -> Iterator[tuple[int, list[Any]]]:
        """Numbered rows that are not empty, without empty cells at their ends."""
        try:
            for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
                cells = [_cell_value(cell) for cell in row]
                while cells and cells[-1] == "":
                    cells.pop()
                if cells:
                    yield number, cells
        except Exception:
            raise TruncatedFileError(ROWS_ERROR) from None

    def _check_size(self, file: FileSource) -> None:
        """Refuse a zip bomb by the sizes it declares, and a zip that is no workbook."""
        try:
            with zipfile.ZipFile(self._handle) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError):
            raise UnreadableFileError(ROWS_ERROR) from None
        if not any(member.filename == "xl/workbook.xml" for member in members):
            raise UnreadableFileError("ends in .xlsx, but is not an Excel workbook")
        if sum(member.file_size for member in members) > max(UNCHECKED_BYTES, MAX_RATIO * file.size):
            raise UnreadableFileError(RATIO_ERROR)
        self._handle.seek(0)


def _cell_value(cell: Any) -> Any:
    """Text as it is, whole numbers without a decimal point, dates in ISO form."""
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case float() if cell.is_integer() and abs(cell) < 2**53:
            return int(cell)
        case datetime() | date() | time():
            return cell.isoformat()
    return cell if isinstance(cell, str | int | float) else str(cell)
