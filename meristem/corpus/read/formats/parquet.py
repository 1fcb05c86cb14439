"""Reader for Parquet: the needed columns only, batch by batch in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from tempfile import TemporaryFile
from typing import IO, Any, cast

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop
from meristem.corpus.read.byte_stream import ByteStream, UnreadableFileError
from meristem.corpus.read.compression import MAX_RATIO, RATIO_ERROR, UNCHECKED_BYTES, TruncatedFileError
from meristem.corpus.read.formats.columns import find_columns
from meristem.corpus.read.formats.parquet_pages import column_pages
from meristem.corpus.read.read_ranges import ReadRange
from meristem.corpus.read.source_kinds import FileSource
from meristem.corpus.settings import CorpusSettings

BATCH_ROWS = 256
BATCH_BYTES = 128 << 20
"""Decompressed bytes per batch: fewer rows are read at once if a column's pages are large."""
MAX_ROW_BYTES = 1 << 30
"""Maximum decompressed bytes of a row with lists."""


class ParquetReader:
    """A file opened by pyarrow, and its page sizes."""

    def __init__(self, arrow: Any, handle: IO[bytes], size: int) -> None:
        self._arrow, self._handle = arrow, handle
        self._max_unpacked = max(UNCHECKED_BYTES, MAX_RATIO * size)
        try:
            self._table = arrow.parquet.ParquetFile(handle)
        except (arrow.ArrowException, OSError):
            raise UnreadableFileError("damaged parquet file") from None
        self.schema = self._table.schema_arrow
        groups = (self._table.metadata.row_group(number) for number in range(self._table.num_row_groups))
        self._check_size(sum(group.total_byte_size for group in groups))

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


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """The documents of a file, by row."""
    arrow = _pyarrow()
    file = cast(FileSource, read_range.source)
    with open_parquet(file, account) as table:
        strings = [field.name for field in table.schema if _is_text(arrow, field.type)]
        columns = find_columns(file.name, table.schema.names, strings, settings)
        rows = count(1)
        for batch in table.batches(columns.names):
            values = [batch.column(name).to_pylist() for name in columns.names]
            for row_values in zip(*values, strict=True):
                yield from columns.documents(row_values, f"{file.name}#{next(rows)}", file.path.parent, account)


@contextmanager
def open_parquet(file: FileSource, account: CorpusAccount) -> Iterator[ParquetReader]:
    """Open the file and read its schema and page headers."""
    with _open_seekable(file, account) as handle:
        yield ParquetReader(_pyarrow(), handle, file.size)


def iter_rows(table: ParquetReader) -> Iterator[dict[str, Any]]:
    """Every row of an opened file with all its columns."""
    for batch in table.batches(table.schema.names):
        yield from batch.to_pylist()


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


@contextmanager
def _open_seekable(file: FileSource, account: CorpusAccount) -> Iterator[IO[bytes]]:
    """The file itself, or a decompressed copy: Parquet is read from its end."""
    stream = ByteStream(file, account)
    if not stream.head.startswith(b"PAR1"):
        raise UnreadableFileError("ends in .parquet, but is not parquet")
    if not file.compression:
        account.bytes += file.size - len(stream.head)
        with file.path.open("rb") as handle:
            yield handle
        return
    with TemporaryFile() as unpacked:
        for chunk in stream.chunks():
            unpacked.write(chunk)
        unpacked.seek(0)
        yield unpacked


def _is_text(arrow: Any, kind: Any) -> bool:
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind))


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MeristemError('reading .parquet needs pyarrow: pip install "meristem-lm[data]"') from None
    return pyarrow
