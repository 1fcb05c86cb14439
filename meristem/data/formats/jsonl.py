"""JSON lines: one object per line, or one string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from meristem.data.formats.lines import iter_lines, line_too_long
from meristem.data.records import BadRecord, FileFormat, Record
from meristem.utils import untrusted_files


class JsonlFormat(FileFormat):
    """JSON lines; a value that is no object is a record too, for its consumer to judge."""

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The value of each line that is not blank."""
        for number, line in iter_lines(self.file, self.counts):
            location = f"{self.name}:{number}"
            if line is None:
                yield line_too_long(location)
            elif line and not line.isspace():
                try:
                    value = untrusted_files.parse_json_line(line)
                    yield self._convert(value, location) if self.options.annotations else Record(value, location)
                except ValueError as error:
                    yield BadRecord("broken JSON", location, f"broken JSON ({error})")

    def _convert(self, value: Any, location: str) -> Record | BadRecord:
        """The record of an object that may be one of an annotation tool."""
        from meristem.data.annotations import convert_annotations  # annotations imports modules that import this one

        return convert_annotations(value, location)
