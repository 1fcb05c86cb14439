"""Arrow files: the streams that `datasets` saves, and Arrow's own file format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meristem.data.byte_stream import UnreadableFileError
from meristem.data.compression import MAX_RATIO, RATIO_ERROR, UNCHECKED_BYTES, TruncatedFileError
from meristem.data.formats.parquet import declared_features, is_text_type
from meristem.data.read_counts import ReadCounts
from meristem.data.records import FileFormat, ReadOptions, Record
from meristem.data.seekable_file import open_seekable
from meristem.data.sources import FileSource
from meristem.utils.optional_packages import require_module

FILE_SIGNATURE, STREAM_SIGNATURE = b"ARROW1", b"\xff\xff\xff\xff"
SLICE_ROWS = 256


class ArrowFormat(FileFormat):
    """Record batches, validated before their values are read."""

    suffixes = (".arrow",)
    is_text = False

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        self._arrow = require_module("pyarrow", "reading .arrow", "data")
        require_module("pyarrow.ipc", "reading .arrow", "data", package="pyarrow")
        self._handle = open_seekable(file, counts, (FILE_SIGNATURE, STREAM_SIGNATURE), "an Arrow file")
        self._max_unpacked = max(UNCHECKED_BYTES, MAX_RATIO * file.size)
        is_file = self._handle.read(len(FILE_SIGNATURE)) == FILE_SIGNATURE
        self._handle.seek(0)
        try:
            self._reader = (self._arrow.ipc.open_file if is_file else self._arrow.ipc.open_stream)(self._handle)
        except (self._arrow.ArrowException, OSError, ValueError):
            raise UnreadableFileError("damaged Arrow file") from None
        schema = self._reader.schema
        self.columns = tuple(schema.names)
        self.text_columns = tuple(field.name for field in schema if is_text_type(self._arrow, field.type))
        self.features = declared_features(schema.metadata or {})

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record]:
        """The rows, numbered from 1."""
        number = 0
        with self._handle:
            for batch in self._batches(self.columns if columns is None else columns):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(values, f"{self.name}#{number}")

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """The rows of some columns, a few at a time; a batch whose offsets lead out of it is damaged."""
        unpacked = 0
        try:
            for batch in self._iter_batches():
                unpacked += batch.nbytes
                if unpacked > self._max_unpacked:
                    raise TruncatedFileError(RATIO_ERROR)
                batch.validate(full=True)
                chosen = batch.select([name for name in batch.schema.names if name in columns])
                for start in range(0, chosen.num_rows, SLICE_ROWS):
                    yield chosen.slice(start, SLICE_ROWS)
        except (self._arrow.ArrowException, OSError, ValueError):
            raise TruncatedFileError("damaged file") from None

    def _iter_batches(self) -> Iterator[Any]:
        if hasattr(self._reader, "num_record_batches"):
            for index in range(self._reader.num_record_batches):
                yield self._reader.get_batch(index)
        else:
            yield from self._reader
