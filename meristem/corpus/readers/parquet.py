"""Parquet: the columns that are wanted, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from tempfile import TemporaryFile
from typing import IO, Any, cast

from meristem.corpus.account import Account
from meristem.corpus.compression import MOST, TRUSTED, CutShort
from meristem.corpus.document import Document, Drop
from meristem.corpus.opening import Stream, Unreadable
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.columns import columns_of
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import File
from meristem.errors import MeristemError

ROWS = 256


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of a file, by row."""
    arrow = _pyarrow()
    file = cast(File, piece.source)
    with opened(file, account) as table:
        strings = [field.name for field in table.schema_arrow if _is_text(arrow, field.type)]
        columns = columns_of(file.name, table.schema_arrow.names, strings, settings)
        rows = count(1)
        for batch in _batches(arrow, table, columns.names):
            values = [batch.column(name).to_pylist() for name in columns.names]
            for one in zip(*values, strict=True):
                yield from columns.documents(one, f"{file.name}#{next(rows)}", file.path.parent, account)


@contextmanager
def opened(file: File, account: Account) -> Iterator[Any]:
    """The file as pyarrow has it: its schema, and its rows in batches."""
    arrow = _pyarrow()
    with _seekable(file, account) as handle:
        try:
            table = arrow.parquet.ParquetFile(handle)
        except (arrow.ArrowException, OSError):
            raise Unreadable("damaged parquet file") from None
        told = table.metadata
        plain = sum(told.row_group(number).total_byte_size for number in range(told.num_row_groups))
        if plain > TRUSTED and plain > MOST * file.size:
            raise Unreadable(f"unpacks to more than {MOST} times its size")
        yield table


def rows(table: Any) -> Iterator[dict[str, Any]]:
    """Every row of an opened file with all its columns."""
    for batch in _batches(_pyarrow(), table, table.schema_arrow.names):
        yield from batch.to_pylist()


def _batches(arrow: Any, table: Any, columns: list[str]) -> Iterator[Any]:
    try:
        yield from table.iter_batches(batch_size=ROWS, columns=columns, use_threads=False)
    except (arrow.ArrowException, OSError, UnicodeDecodeError):
        raise CutShort("damaged file") from None


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
        import pyarrow.parquet
    except ImportError:
        raise MeristemError('reading .parquet needs pyarrow: pip install "meristem[data]"') from None
    return pyarrow
