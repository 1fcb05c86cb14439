"""One JSON value a file: SQuAD's articles, a list of objects, or lines of JSON after all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem import bounded
from meristem.errors import MeristemError
from meristem.labelled.formats import Asked, jsonl, squad
from meristem.labelled.found import Flaw, Found, Notes, Rows
from meristem.labelled.opening import file_of, text


def read(asked: Asked, notes: Notes) -> Rows:
    """The objects in a list, or the questions of SQuAD's articles."""
    file = file_of(asked.path)
    whole = text(file, notes)
    try:
        found = bounded.row(whole)
    except ValueError as error:
        lines = whole.lstrip().split("\n", 1)
        if len(lines) > 1 and _is_object(lines[0]):
            return jsonl.read(asked, notes)
        line = getattr(error, "lineno", 1)
        raise MeristemError(f"{file.name}:{line}: broken JSON ({error})") from None
    if isinstance(found, dict) and isinstance(found.get("data"), list):
        found = found["data"]
    elif isinstance(found, dict) and len(lists := [value for value in found.values() if isinstance(value, list)]) == 1:
        found = lists[0]
    if not isinstance(found, list):
        raise MeristemError(f"{file.name}: a list of objects is wanted, or SQuAD's articles; not one object")
    if any(isinstance(one, dict) and "paragraphs" in one for one in found):
        return Rows(squad.questions(found, file.name), file.name, squad.COLUMNS, used=squad.USED)
    if asked.data.format == "squad":
        raise MeristemError(
            f"{file.name}: no articles with paragraphs in it, as SQuAD's files have; try data.format=table"
        )
    return Rows(_objects(found, file.name), file.name)


def _objects(found: list[Any], name: str) -> Iterator[Found | Flaw]:
    for number, record in enumerate(found, 1):
        place = f"{name}#{number}"
        if isinstance(record, dict):
            yield Found(jsonl.flat(record), place)
        else:
            yield Flaw(f"{place}: an object with columns is wanted, not a {type(record).__name__}")


def _is_object(line: str) -> bool:
    try:
        return isinstance(bounded.row(line), dict)
    except ValueError:
        return False
