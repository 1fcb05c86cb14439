"""Parquet: the needed columns only, batch by batch in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meristem.data.byte_stream import UnreadableFileError
from meristem.data.compression import MAX_RATIO, RATIO_ERROR, UNCHECKED_BYTES, TruncatedFileError
from meristem.data.parquet_pages import column_pages
from meristem.data.read_counts import ReadCounts
from meristem.data.records import FileFormat, ReadOptions, Record
from meristem.data.seekable_file import open_seekable
from meristem.data.sources import FileSource
from meristem.utils import untrusted_files
from meristem.utils.optional_packages import require_module

BATCH_ROWS = 256
BATCH_BYTES = 128 << 20
"""Decompressed bytes per batch: fewer rows are read at once if a column's pages are large."""
MAX_ROW_BYTES = 1 << 30
"""Maximum decompressed bytes of a row with lists."""


class ParquetFormat(FileFormat):
    """Parquet, compressed or not; no page and no batch fills the memory."""

    suffixes = (".parquet",)
    is_text = False

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        self._arrow, self._handle = _pyarrow(), open_seekable(file, counts, (b"PAR1",), "parquet")
        self._max_unpacked = max(UNCHECKED_BYTES, MAX_RATIO * file.size)
        try:
            self._table = self._arrow.parquet.ParquetFile(self._handle)
        except (self._arrow.ArrowException, OSError):
            raise UnreadableFileError("damaged parquet file") from None
        self.schema = self._table.schema_arrow
        groups = (self._table.metadata.row_group(number) for number in range(self._table.num_row_groups))
        self._check_size(sum(group.total_byte_size for group in groups))
        self.columns = tuple(self.schema.names)
        self.text_columns = tuple(field.name for field in self.schema if is_text_type(self._arrow, field.type))
        self.features = declared_features(self.schema.metadata or {})

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record]:
        """The rows, numbered from 1."""
        number = 0
        with self._handle:
            for batch in self.batches(self.columns if columns is None else columns):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(values, f"{self.name}#{number}")

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """The rows of some columns, in batches never much larger than BATCH_BYTES."""
        rows, dictionary_columns = self._plan_read(columns)
        table = self._table
        if dictionary_columns:  # lists: values stay dictionary indices until their total size is known
            table = self._arrow.parquet.ParquetFile(
                self._handle, read_dictionary=dictionary_columns, metadata=table.metadata
            )
        unpacked = 0
        try:
            for group in range(table.num_row_groups):  # one by one: a list cannot refer to two dictionaries
                arrow_batches = table.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False)
                for batch in arrow_batches:
                    unpacked += self._unpacked_bytes(batch)
                    if unpacked > self._max_unpacked:
                        raise TruncatedFileError(RATIO_ERROR)
                    yield from self._expand_dictionary(batch) if dictionary_columns else (batch,)
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError):
            raise TruncatedFileError("damaged file") from None

    def _plan_read(self, columns: Sequence[str]) -> tuple[int, list[str]]:
        """Rows to read at once, and the columns whose values are checked before they are decoded."""
        metadata, dictionary_columns = self._table.metadata, []
        row_bytes = bytes_unpacked = 0
        for leaf in range(metadata.num_columns):
            column = metadata.schema.column(leaf)
            if not any(f"{column.path}.".startswith(f"{name}.") for name in columns):
                continue
            try:
                pages = column_pages(self._handle, metadata, leaf)
            except (ValueError, OSError):
                raise UnreadableFileError("damaged parquet file") from None
            bytes_unpacked += pages.unpacked_bytes
            self._check_size(pages.values * max(1, column.length or 0))
            row_bytes += pages.largest_page
            if column.max_repetition_level and column.physical_type == "BYTE_ARRAY":
                if pages.front_coded:
                    self._check_size(pages.values * pages.largest_page)
                elif pages.dictionary:
                    dictionary_columns.append(column.path)
        self._check_size(bytes_unpacked)
        return max(1, min(BATCH_ROWS, min(BATCH_BYTES, self._max_unpacked) // max(1, row_bytes))), dictionary_columns

    def _unpacked_bytes(self, batch: Any) -> int:
        return sum(_unpacked_bytes(self._arrow, column) for column in batch.columns)

    def _expand_dictionary(self, batch: Any) -> Iterator[Any]:
        """A batch with the values of its lists decoded, a few rows at a time if they are long."""
        size = self._unpacked_bytes(batch)
        if size > BATCH_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self._expand_dictionary(batch.slice(0, half))
            yield from self._expand_dictionary(batch.slice(half))
        elif size > MAX_ROW_BYTES:
            raise TruncatedFileError(f"a row of more than {MAX_ROW_BYTES >> 20:,} MiB")
        else:
            yield batch.cast(self._arrow.schema([self.schema.field(name) for name in batch.schema.names]))

    def _check_size(self, unpacked: int) -> None:
        if unpacked > self._max_unpacked:
            raise UnreadableFileError(RATIO_ERROR)


def _unpacked_bytes(arrow: Any, array: Any) -> int:
    """Bytes of an array's values when decoded; at least one per value."""
    kind = array.type
    if arrow.types.is_dictionary(kind):
        lengths = arrow.compute.binary_length(array.dictionary)
        total = arrow.compute.sum(arrow.compute.take(lengths, array.indices.drop_null()).cast(arrow.int64())).as_py()
        return max(len(array), int(total or 0))
    if arrow.types.is_struct(kind):
        return len(array) + sum(_unpacked_bytes(arrow, field) for field in array.flatten())
    if arrow.types.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        sides = (side.slice(first, last - first) for side in (array.keys, array.items))
        return len(array) + sum(_unpacked_bytes(arrow, side) for side in sides)
    if arrow.types.is_nested(kind) and hasattr(array, "flatten"):
        return len(array) + _unpacked_bytes(arrow, array.flatten())
    return max(len(array), int(array.nbytes))


def declared_features(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """The column types that the `datasets` library stores in a schema's metadata."""
    try:
        features = untrusted_files.parse_strict_json(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}


def is_text_type(arrow: Any, kind: Any) -> bool:
    """Whether a column's type is text, encoded as a dictionary or not."""
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind))


def _pyarrow() -> Any:
    require_module("pyarrow.compute", "reading .parquet", "data", package="pyarrow")
    require_module("pyarrow.parquet", "reading .parquet", "data", package="pyarrow")
    return require_module("pyarrow", "reading .parquet", "data")
