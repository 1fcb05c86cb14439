"""Records, readers and file formats: the contract between files and whatever is made of their contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from meristem.config.registry import ComponentKind, Registry
from meristem.data.encoding import TextEncoding
from meristem.data.read_counts import ReadCounts

if TYPE_CHECKING:
    from meristem.data.sources import FileSource


class Record(NamedTuple):
    """One record: a text, or values by column; and its location, `file:line` or `file#row`."""

    value: Any
    location: str


class BadRecord(NamedTuple):
    """A record that cannot be read."""

    reason: str
    """A few words without details, by which it is counted."""
    location: str
    detail: str = ""
    """The sentence for the person who has to fix it; the reason if empty."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a file, where its format leaves a choice; every format ignores what it has no use for."""

    header: bool | None = None
    """Table: whether the first row names the columns; detected if None."""
    known_columns: frozenset[str] = frozenset()
    """Table: column names, in lower case, by which a header is recognised."""
    strict_quotes: bool = True
    """Table: whether a stray quote inside a cell makes the row a bad record."""
    column_numbers: Mapping[str, str | None] = field(default_factory=dict)
    """CoNLL: the number, from 1, of the columns `words` and `tags`; the usual ones if None."""
    require_tags: bool = False
    """CoNLL: whether a file without tags is refused."""
    line_column: str = "text"
    """Lines: the name of their only column."""
    annotations: bool = False
    """JSON: whether objects of annotation tools become words with tags, or labels."""
    document_unit: str = "auto"
    """Text: what is one record, `file`, `block`, `line` or `article`."""
    start: int = 0
    """Text: the first byte to read."""
    stop: int | None = None
    """Text: the byte to stop before; None reads to the end."""
    encoding: TextEncoding | None = None
    """Text: the encoding, for ranges that begin behind what it was detected from."""


class RecordReader:
    """The records of one source."""

    name: str
    """The source's name in messages."""
    columns: tuple[str, ...] = ()
    """Columns in order, if a header or schema names them; else they are taken from the records."""
    text_columns: tuple[str, ...] = ()
    """Those of them that may hold text."""
    columns_location: str = ""
    """Where the columns are named, for messages."""
    features: Mapping[str, Any] = {}
    """Column types as the `datasets` library declares them, with the names of classes."""

    @property
    def layout(self) -> str:
        """The format's name; a format that contains others names the one it met."""
        return type(self).__module__.rpartition(".")[2]

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The records in order; with `columns`, only these need be read."""
        raise NotImplementedError


class FileFormat(RecordReader):
    """A file format; constructing one opens the file.

    Raises UnreadableFileError for a file that is not of this format and TruncatedFileError where it is damaged.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    """File endings, in lower case, that mean this format."""
    only_named: ClassVar[bool] = False
    """Whether such files are read only if named: in a folder of documents they are usually something else."""
    is_text: ClassVar[bool] = True
    """Whether files are characters in some encoding."""
    has_columns: ClassVar[bool] = True
    """Whether records have columns, rather than being texts."""

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        self.file, self.options, self.counts = file, options, counts
        self.name = self.columns_location = file.name


FILE_FORMATS = Registry(ComponentKind.FORMAT, FileFormat)
"""File formats by name: `FILE_FORMATS["jsonl"]` is the class in data/formats/jsonl.py."""
