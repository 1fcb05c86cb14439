"""Two files of lines, the n-th of one belonging to the n-th of the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from meristem.corpus.source_kinds import File
from meristem.corpus.sources import missing
from meristem.errors import MeristemError
from meristem.labelled.formats import Asked
from meristem.labelled.found import Found, Notes, Rows
from meristem.labelled.opening import file_of, lines

COLUMNS = ("source", "target")
USED = ("text", "target")


def read(asked: Asked, notes: Notes) -> Rows:
    """Pairs of lines; without the other side, where nothing right is asked for, single ones."""
    file = file_of(asked.path)
    if asked.target is None:
        if not asked.gold:
            return Rows(_single(file, notes), file.name, COLUMNS[:1], used=USED)
        setting = "data.target" if asked.split == "train" else f"data.{asked.split}_target"
        raise MeristemError(f"{file.name}: {setting}: missing; name the file with a line for each of its lines")
    other = Path(asked.target).expanduser()
    if not other.is_file():
        raise MeristemError(f"data.target: {missing(other)}")
    return Rows(_pairs(file, file_of(other), notes), file.name, COLUMNS, used=USED)


def _single(file: File, notes: Notes) -> Iterator[Found]:
    for number, line in lines(file, notes):
        yield Found({"source": line}, f"{file.name}:{number}")


def _pairs(source: File, target: File, notes: Notes) -> Iterator[Found]:
    counts = [0, 0]
    for ours, theirs in zip_longest(lines(source, notes), lines(target, notes)):
        counts = [count + (side is not None) for count, side in zip(counts, (ours, theirs), strict=True)]
        if ours is not None and theirs is not None:
            yield Found({"source": ours[1], "target": theirs[1]}, f"{source.name}:{ours[0]}")
    if counts[0] != counts[1]:
        longer = source if counts[0] > counts[1] else target
        raise MeristemError(
            f"{source.name} has {counts[0]:,} lines and {target.name} has {counts[1]:,}: "
            f"{longer.name}:{min(counts) + 1} is the first without a partner, and from some line before it on "
            "the pairs may be wrong"
        )
