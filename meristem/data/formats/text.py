"""Plain text: one record per file, per block between blank lines, or per line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from meristem.data import text_units
from meristem.data.byte_stream import ByteStream
from meristem.data.encoding import decode_stream
from meristem.data.records import FileFormat, Record

WHOLE_FILE_BYTES = 64 << 10
"""Files smaller than this are one record, unless the options say otherwise."""

LARGE_BLOCK_CHARS = 16 << 10
"""Mean characters between blank lines above which those divide chapters or books, so each line is a record."""

BLANK_LINE = re.compile(r"\n[ \t]*\n")


class TextFormat(FileFormat):
    """Plain text, or a range of its bytes; blank lines separate records and are none."""

    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".text", ".md")
    has_columns = False
    separators: ClassVar[Mapping[str, re.Pattern[str]]] = {
        "line": re.compile("\n"),
        "block": re.compile("\n(?:[ \t]*\n)+"),
        "file": re.compile("(?!)"),
    }
    """What separates the records of each unit."""
    byte_separators: ClassVar[Mapping[str, re.Pattern[bytes]]] = {
        "line": re.compile(rb"\n"),
        "block": re.compile(rb"\n[ \t\r]*\n"),
    }
    """The same in bytes of an encoding in which a newline is one byte: where a file may be cut into ranges."""

    @classmethod
    def choose_unit(cls, head: str, size: int, requested: str) -> str:
        """The unit of one record, given the head of a file and a lower bound of its size in bytes."""
        if requested != "auto":
            return requested
        if size < WHOLE_FILE_BYTES:
            return "file"
        return "block" if len(BLANK_LINE.findall(head)) * LARGE_BLOCK_CHARS >= len(head) else "line"

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record]:
        """The records of the file or range; lines are counted from the start of the range."""
        stream = ByteStream(self.file, self.counts, self.options.start, self.options.stop)
        texts = decode_stream(stream, self.counts, self.options.encoding)
        rest, line = next(texts), 1
        separator = self.separators[self.choose_unit(rest, len(stream.head), self.options.document_unit)]
        while True:
            start = 0
            for match in separator.finditer(rest):
                yield from self._record(rest[start : match.start()], line)
                line += rest.count("\n", start, match.end())
                start = match.end()
            rest = rest[start:]
            while len(rest) > text_units.MAX_TEXT_CHARS:  # no record fills the memory
                cut_at = text_units.cut_position(rest)
                yield from self._record(rest[:cut_at], line)
                line += rest.count("\n", 0, cut_at)
                rest = rest[cut_at:]
            next_text = next(texts, None)
            if next_text is None:
                break
            rest += next_text
        yield from self._record(rest, line)
        self.counts.lines += line - 1 + rest.count("\n")

    def _record(self, text: str, line: int) -> Iterator[Record]:
        if text and not text.isspace():
            yield Record(text, f"{self.name}:{line}")
