"""Splits the sources into ranges for worker processes: a file, a byte range of a large text file, a sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from meristem.corpus.settings import CorpusSettings
from meristem.data.byte_stream import ByteStream, UnreadableFileError
from meristem.data.compression import TruncatedFileError
from meristem.data.encoding import TextEncoding, file_encoding
from meristem.data.formats.text import TextFormat
from meristem.data.read_counts import ReadCounts
from meristem.data.sources import FileSource, Source, format_class

RANGE_BYTES = 4 << 20
"""Bytes per range of a large text file; independent of the number of processes, so that the result is the same."""


@dataclass(frozen=True)
class ReadRange:
    """What a worker reads at once, with what was detected from the file's first MiB."""

    source: Source
    start: int = 0
    stop: int | None = None
    encoding: TextEncoding | None = None
    document_unit: str | None = None
    split: str = ""
    """The split, for separate held-out data; "" for the source."""


def plan_ranges(sources: Iterable[Source], settings: CorpusSettings, split: str = "") -> Iterator[ReadRange]:
    """The ranges of all sources, in order."""
    for source in sources:
        if (
            isinstance(source, FileSource)
            and issubclass(format_class(source.format), TextFormat)
            and not source.compression
            and source.size > RANGE_BYTES
        ):
            yield from (replace(read_range, split=split) for read_range in _ranges(source, settings))
        else:
            yield ReadRange(source, split=split)


def plan_held_out_ranges(held_out: Mapping[str, Iterable[Source]], settings: CorpusSettings) -> Iterator[ReadRange]:
    """The ranges of separate validation and test data, which are read before all others."""
    for split, sources in held_out.items():
        yield from plan_ranges(sources, settings, split)


def _ranges(file: FileSource, settings: CorpusSettings) -> Iterator[ReadRange]:
    try:
        head = ByteStream(file, ReadCounts()).head
        encoding = file_encoding(file, head, is_complete=False)
    except (UnreadableFileError, TruncatedFileError):
        yield ReadRange(file)  # its reader will raise the same error and count it
        return
    text = head.decode(encoding.codec, "replace").replace("\r\n", "\n")
    text_format = format_class(file.format)
    assert issubclass(text_format, TextFormat)  # plan_ranges asks only for these
    document_unit = text_format.choose_unit(text, file.size, settings.document)
    if document_unit == "file" or encoding.codec not in ASCII_NEWLINE_CODECS:
        yield ReadRange(file, encoding=encoding, document_unit=document_unit)
        return
    start = 0
    for stop in (*_range_ends(file, text_format.byte_separators[document_unit]), file.size):
        if stop > start:
            yield ReadRange(
                file, start, stop, encoding if start == 0 else TextEncoding(_codec_without_bom(encoding)), document_unit
            )
            start = stop


ASCII_NEWLINE_CODECS = {"utf-8", "utf-8-sig", "gb18030", "cp1252"}
"""Encodings in which a newline is one byte that is never part of another character."""


def _codec_without_bom(encoding: TextEncoding) -> str:
    return encoding.codec.removesuffix("-sig")


def _range_ends(file: FileSource, separator: re.Pattern[bytes]) -> Iterator[int]:
    """Ends of ranges: after the first separator beyond each multiple of RANGE_BYTES."""
    with file.path.open("rb") as handle:
        position = RANGE_BYTES
        while position < file.size:
            handle.seek(position)
            window = handle.read(1 << 20)
            match = separator.search(window)
            if match:
                yield position + match.end()
                position += match.end() + RANGE_BYTES
            else:
                position += max(len(window) - 64, 1)  # a separator may span two windows
