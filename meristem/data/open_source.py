"""Opens a source: the reader of its records."""

from __future__ import annotations

from meristem.data.byte_stream import ByteStream
from meristem.data.encoding import decode_stream
from meristem.data.formats.parallel import ParallelFormat
from meristem.data.named_datasets import BuiltinReader, HubReader
from meristem.data.read_counts import ReadCounts
from meristem.data.records import ReadOptions, RecordReader
from meristem.data.sources import BuiltinSource, FileSource, HubSource, ParallelSource, Source, format_class


def open_source(source: Source, options: ReadOptions, counts: ReadCounts) -> RecordReader:
    """The records of a sample, a dataset or a file; what is met on the way is counted in `counts`."""
    if isinstance(source, BuiltinSource):
        return BuiltinReader(source)
    if isinstance(source, HubSource):
        return HubReader(source)
    if isinstance(source, ParallelSource):
        return ParallelFormat(source, options, counts)
    return format_class(source.format)(source, options, counts)


def read_head(file: FileSource) -> str:
    """Complete lines from the beginning of a file, about 1 MiB."""
    counts = ReadCounts()
    stream = ByteStream(file, counts)
    is_complete, first_chunk = stream.head_is_all, next(decode_stream(stream, counts))
    return first_chunk if is_complete else first_chunk[: first_chunk.rfind("\n") + 1] or first_chunk
