"""The CSV dialect in a table's cache key: empty if it is the one its extension implies."""

from __future__ import annotations

from functools import lru_cache

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.read.byte_stream import ByteStream, UnreadableFileError
from meristem.corpus.read.compression import TruncatedFileError
from meristem.corpus.read.csv_dialect import detect_dialect
from meristem.corpus.read.encoding import decode_stream
from meristem.corpus.read.source_kinds import FileSource

DEFAULT_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def dialect_key(file: FileSource, known_by: tuple[str | int | None, ...]) -> list[str | int | None]:
    """The delimiter of a table that older versions read with the wrong one, so that their datasets are not reused.

    The result is cached by `known_by`, the file's own key.
    """
    delimiter = _detect_delimiter(file, known_by)
    return [] if delimiter == DEFAULT_DELIMITERS.get(file.table_extension, "") else [f"delimiter {delimiter}"]


@lru_cache(maxsize=1 << 14)
def _detect_delimiter(file: FileSource, known_by: tuple[str | int | None, ...]) -> str:
    account = CorpusAccount()
    try:
        head = next(decode_stream(ByteStream(file, account), account))
    except (UnreadableFileError, TruncatedFileError):
        return DEFAULT_DELIMITERS.get(file.table_extension, "")
    return detect_dialect([line for line in head.split("\n") if line.strip()], file.table_extension).delimiter
