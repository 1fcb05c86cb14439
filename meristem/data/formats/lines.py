"""Lines of plain text, numbered and of bounded length: one record each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from meristem.data.byte_stream import ByteStream
from meristem.data.encoding import decode_stream
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.sources import FileSource

MAX_LINE_CHARS = 16_000_000
"""Maximum characters of a line; longer ones are skipped, and counted by the reader."""
LINE_TOO_LONG = "line too long"


class LinesFormat(FileFormat):
    """Plain text with one record per line, blank ones included."""

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        self.columns = self.text_columns = (options.line_column,)

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """Every line."""
        for number, line in iter_lines(self.file, self.counts):
            if line is None:
                yield line_too_long(f"{self.name}:{number}")
            else:
                yield Record({self.options.line_column: line}, f"{self.name}:{number}")


def line_too_long(location: str) -> BadRecord:
    """The record of a line that was skipped."""
    detail = f"a line of more than {MAX_LINE_CHARS // 1_000_000} million characters; is this the right file?"
    return BadRecord(LINE_TOO_LONG, location, detail)


def iter_lines(file: FileSource, counts: ReadCounts) -> Iterator[tuple[int, str | None]]:
    """The numbered lines of a file; None in place of a line that is too long."""
    return number_lines(decode_stream(ByteStream(file, counts), counts))


def number_lines(texts: Iterable[str]) -> Iterator[tuple[int, str | None]]:
    """(number, line without newline); None in place of a line that is too long."""
    rest, number, overlong = "", 1, False
    for text in texts:
        if overlong:  # skip the rest of the line
            _, newline, text = text.partition("\n")
            if not newline:
                continue
            yield number, None
            number, overlong = number + 1, False
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield number, None if len(line) > MAX_LINE_CHARS else line
            number += 1
        if len(rest) > MAX_LINE_CHARS:
            rest, overlong = "", True
    if rest or overlong:
        yield number, None if overlong else rest
