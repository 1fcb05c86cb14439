"""What a person gives to predict on, from words, files and pipes, in chunks: however long it is, little is held."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from meristem import bounded
from meristem.errors import MeristemError, RecipeError

if TYPE_CHECKING:
    from meristem.evaluation.asking import Asked
    from meristem.labelled.settings import DataSettings
    from meristem.task import Task

CHUNK = 512
"""Samples that are answered together at the most."""
READ = 1 << 16
"""Bytes taken from a pipe at once, or as many as are there."""
PIPE = "-"


def chunks(task: Task, data: DataSettings | None, parts: Mapping[str, Any], file: str | None) -> Iterator[list[Asked]]:
    """What was given in parts, or the samples of a file or a pipe."""
    from meristem.evaluation.asking import Asked, asked

    if parts and file is not None:
        raise RecipeError(f"predict: --file and {next(iter(parts))} exclude each other")
    if parts:
        return iter([[Asked(given=asked(task, parts), row=parts)]])
    if file is None and sys.stdin.isatty():
        raise RecipeError("predict: give a text, --file FILE, or pipe lines in")
    if file is None or file == PIPE:
        return _piped(task)
    return _cut(_read(task, file, data), CHUNK)


def _read(task: Task, source: str, data: DataSettings | None) -> Iterator[Asked]:
    """The rows of a file with columns, or the lines of any other, each with its place."""
    from meristem.corpus.sources import missing
    from meristem.evaluation.asking import Asked
    from meristem.labelled.formats import ENDINGS
    from meristem.labelled.found import Notes
    from meristem.labelled.opening import file_of, lines
    from meristem.labelled.reading import stream
    from meristem.labelled.settings import DataSettings

    path, data = Path(source).expanduser(), data or DataSettings.model_validate({})
    if path.is_file() and data.format in ("auto", "parallel") and file_of(path).ending not in ENDINGS:
        yield from _lines(task, ((f"{path.name}:{number}", line) for number, line in lines(file_of(path), Notes())))
        return
    if ":" not in source and not any(mark in source for mark in "*?[") and not path.exists():
        raise MeristemError(f"--file: {missing(path)}")
    for one in stream(source, data, task.shape):
        if isinstance(one, MeristemError):
            yield Asked(error=str(one), row=one.row)
        else:
            yield Asked(given=one, place=one.place)


def _piped(task: Task) -> Iterator[list[Asked]]:
    """Lines as they come: whatever is there is answered before more is waited for."""
    number, rest = 0, b""
    stream = cast(BufferedReader, sys.stdin.buffer)
    while True:
        some = stream.read1(READ)
        *whole, rest = (rest + some).split(b"\n") if some else [rest, b""]
        found = [(f"line {number + place}", line) for place, line in enumerate(whole, 1)]
        number += len(whole)
        yield from _cut(_lines(task, found), CHUNK)
        if not some:
            return


def _lines(task: Task, found: Iterable[tuple[str, str | bytes]]) -> Iterator[Asked]:
    """A sample a line: a text, its parts with tabs between, or a JSON object; blank lines are passed over."""
    from meristem.evaluation.asking import Asked, parts_of

    names = parts_of(task).needs
    for place, line in found:
        try:
            text = (line.decode("utf-8-sig") if isinstance(line, bytes) else line).rstrip("\r")
        except UnicodeDecodeError:
            yield Asked(place=place, error=f"{place}: not UTF-8 text")
            continue
        if not text.strip():
            continue
        if text.lstrip().startswith("{") and (named := _object(text)) is not None:
            yield Asked(given=named, place=place)
        elif len(names) > 1 and text.count("\t") >= len(names) - 1:
            yield Asked(given=_tabbed(names, text), place=place)
        else:
            yield Asked(given=text, place=place)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that a line is; none where it only looks like one."""
    try:
        found = bounded.row(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _tabbed(names: tuple[str, ...], text: str) -> dict[str, Any]:
    """Parts in their order; of choices all that are there."""
    cells = text.split("\t")
    named: dict[str, Any] = dict(zip(names, cells, strict=False))
    if names[-1] == "choices":
        named["choices"] = cells[len(names) - 1 :]
    return named


def _cut(found: Iterator[Asked], size: int) -> Iterator[list[Asked]]:
    while some := list(islice(found, size)):
        yield some
