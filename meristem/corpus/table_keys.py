"""What a table's cache key says of its dialect: nothing where it is the one its ending names."""

from __future__ import annotations

from functools import lru_cache

from meristem.corpus.account import Account
from meristem.corpus.compression import CutShort
from meristem.corpus.encoding import decoded
from meristem.corpus.opening import Stream, Unreadable
from meristem.corpus.source_kinds import File
from meristem.corpus.tables import detect_dialect

USUAL = {".csv": ",", ".tsv": "\t"}


def dialect_key(file: File, known_by: tuple[str | int | None, ...]) -> list[str | int | None]:
    """The delimiter of a table that commas or tabs were once wrongly taken for, so that its old shards are not found.

    The answer is remembered by `known_by`, the file's own key.
    """
    delimiter = _delimiter(file, known_by)
    return [] if delimiter == USUAL.get(file.table_ending, "") else [f"delimiter {delimiter}"]


@lru_cache(maxsize=1 << 14)
def _delimiter(file: File, known_by: tuple[str | int | None, ...]) -> str:
    account = Account()
    try:
        head = next(decoded(Stream(file, account), account))
    except (Unreadable, CutShort):
        return USUAL.get(file.table_ending, "")
    return detect_dialect([line for line in head.split("\n") if line.strip()], file.table_ending).delimiter
