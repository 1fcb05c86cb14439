"""Parquet: the columns that are wanted, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from tempfile import TemporaryFile
from typing import IO, Any, cast

from meristem.corpus.account import Account
from meristem.corpus.compression import BEYOND, MOST, TRUSTED, CutShort
from meristem.corpus.document import Document, Drop
from meristem.corpus.opening import Stream, Unreadable
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.columns import columns_of
from meristem.corpus.readers.parquet_pages import column_pages
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import File
from meristem.errors import MeristemError

ROWS = 256
BATCH_BYTES = 128 << 20
"""Unpacked bytes of a batch: fewer rows are read at once where a column's pages are large."""
LARGEST_ROW = 1 << 30
"""Unpacked bytes of a row with lists."""


class OpenedParquet:
    """A file as pyarrow has it, and what its pages say of its size."""

    def __init__(self, arrow: Any, handle: IO[bytes], size: int) -> None:
        self._arrow, self._handle = arrow, handle
        self._most = max(TRUSTED, MOST * size)
        try:
            self._table = arrow.parquet.ParquetFile(handle)
        except (arrow.ArrowException, OSError):
            raise Unreadable("damaged parquet file") from None
        self.schema = self._table.schema_arrow
        groups = (self._table.metadata.row_group(number) for number in range(self._table.num_row_groups))
        self._refuse_beyond(sum(group.total_byte_size for group in groups))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """The rows of some columns, in batches that are never much larger than BATCH_BYTES."""
        rows, shared = self._plan(columns)
        table = self._table
        if shared:  # lists: however many values a row has, each is a number until it is known what they come to
            table = self._arrow.parquet.ParquetFile(self._handle, read_dictionary=shared, metadata=table.metadata)
        unpacked = 0
        try:
            for group in range(table.num_row_groups):  # one by one: a list cannot name values of two dictionaries
                given = table.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False)
                for batch in given:
                    unpacked += self._unpacked_bytes(batch)
                    if unpacked > self._most:
                        raise CutShort(BEYOND)
                    yield from self._written_out(batch) if shared else (batch,)
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError):
            raise CutShort("damaged file") from None

    def _plan(self, columns: Sequence[str]) -> tuple[int, list[str]]:
        """How many rows to read at once, and the columns whose values are looked at before they are unpacked."""
        metadata, shared = self._table.metadata, []
        widest = bytes_unpacked = 0
        for leaf in range(metadata.num_columns):
            column = metadata.schema.column(leaf)
            if not any(f"{column.path}.".startswith(f"{name}.") for name in columns):
                continue
            try:
                pages = column_pages(self._handle, metadata, leaf)
            except (ValueError, OSError):
                raise Unreadable("damaged parquet file") from None
            bytes_unpacked += pages.unpacked_bytes
            self._refuse_beyond(pages.values * max(1, column.length or 0))
            widest += pages.largest_page
            if column.max_repetition_level and column.physical_type == "BYTE_ARRAY":
                if pages.front_coded:
                    self._refuse_beyond(pages.values * pages.largest_page)
                elif pages.dictionary:
                    shared.append(column.path)
        self._refuse_beyond(bytes_unpacked)
        return max(1, min(ROWS, min(BATCH_BYTES, self._most) // max(1, widest))), shared

    def _unpacked_bytes(self, batch: Any) -> int:
        return sum(_unpacked_bytes(self._arrow, column) for column in batch.columns)

    def _written_out(self, batch: Any) -> Iterator[Any]:
        """A batch with every value of its lists in its place, a few rows at a time where they are long."""
        size = self._unpacked_bytes(batch)
        if size > BATCH_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self._written_out(batch.slice(0, half))
            yield from self._written_out(batch.slice(half))
        elif size > LARGEST_ROW:
            raise CutShort(f"a row of more than {LARGEST_ROW >> 20:,} MiB")
        else:
            yield batch.cast(self._arrow.schema([self.schema.field(name) for name in batch.schema.names]))

    def _refuse_beyond(self, unpacked: int) -> None:
        if unpacked > self._most:
            raise Unreadable(BEYOND)


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of a file, by row."""
    arrow = _pyarrow()
    file = cast(File, piece.source)
    with opened(file, account) as table:
        strings = [field.name for field in table.schema if _is_text(arrow, field.type)]
        columns = columns_of(file.name, table.schema.names, strings, settings)
        rows = count(1)
        for batch in table.batches(columns.names):
            values = [batch.column(name).to_pylist() for name in columns.names]
            for one in zip(*values, strict=True):
                yield from columns.documents(one, f"{file.name}#{next(rows)}", file.path.parent, account)


@contextmanager
def opened(file: File, account: Account) -> Iterator[OpenedParquet]:
    """The file with its schema, and its rows in batches."""
    with _seekable(file, account) as handle:
        yield OpenedParquet(_pyarrow(), handle, file.size)


def rows(table: OpenedParquet) -> Iterator[dict[str, Any]]:
    """Every row of an opened file with all its columns."""
    for batch in table.batches(table.schema.names):
        yield from batch.to_pylist()


def _unpacked_bytes(arrow: Any, array: Any) -> int:
    """What an array's values take when each is written out; one for each at least."""
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
def _seekable(file: File, account: Account) -> Iterator[IO[bytes]]:
    """The file itself, or what it unpacks to: parquet is read from its end."""
    stream = Stream(file, account)
    if not stream.head.startswith(b"PAR1"):
        raise Unreadable("ends in .parquet, but is not parquet")
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
        raise MeristemError('reading .parquet needs pyarrow: pip install "meristem[data]"') from None
    return pyarrow
