"""JSON lines: an object a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem import bounded
from meristem.corpus.source_kinds import File
from meristem.labelled.formats import Asked
from meristem.labelled.found import Flaw, Found, Notes, Rows
from meristem.labelled.opening import file_of, lines


def read(asked: Asked, notes: Notes) -> Rows:
    """The objects of a file."""
    file = file_of(asked.path)
    return Rows(_found(file, notes), file.name)


def _found(file: File, notes: Notes) -> Iterator[Found | Flaw]:
    for number, line in lines(file, notes):
        if not line or line.isspace():
            continue
        place = f"{file.name}:{number}"
        try:
            record = bounded.row(line)
        except ValueError as error:
            yield Flaw(f"{place}: broken JSON ({error})")
            continue
        if isinstance(record, dict):
            yield Found(flat(record), place)
        else:
            yield Flaw(f"{place}: an object with columns is wanted, not a {type(record).__name__}")


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose two languages stand under `translation`, as data sets have them, with each as a column."""
    both = record.get("translation")
    return {**both, **record} if isinstance(both, dict) else record
