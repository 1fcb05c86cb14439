"""Plain text, a sample a line: something to predict on."""

from __future__ import annotations

from collections.abc import Iterator

from meristem.corpus.source_kinds import File
from meristem.labelled.formats import Asked
from meristem.labelled.found import Found, Notes, Rows
from meristem.labelled.opening import file_of, lines

COLUMNS = {"written": "source", "turns": "turns", "picture": "picture", "picture_prompt": "picture"}
USED = ("text", "words", "turns", "picture", "label", "target", "intent")


def read(asked: Asked, notes: Notes) -> Rows:
    """Every line under the column's name that its shape looks for."""
    file = file_of(asked.path)
    column = COLUMNS.get(asked.shape, "text")
    return Rows(_found(file, column, notes), file.name, (column,), used=USED)


def _found(file: File, column: str, notes: Notes) -> Iterator[Found]:
    for number, line in lines(file, notes):
        yield Found({column: line}, f"{file.name}:{number}")
