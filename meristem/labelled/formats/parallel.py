"""Parallel text: two line-aligned files, source and target."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.corpus.read.source_kinds import FileSource
from meristem.corpus.read.sources import describe_missing_path
from meristem.labelled.formats import SourceSpec
from meristem.labelled.open_file import file_from_path, iter_lines
from meristem.labelled.rows import RawRow, ReadNotes, RowStream

COLUMNS = ("source", "target")
CONSUMED_SETTINGS = ("text", "target")


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """Pairs of source and target lines; only source lines if there is no target and no gold is required."""
    file = file_from_path(spec.path)
    if spec.target is None:
        if not spec.require_gold:
            return RowStream(_iter_sources(file, notes), file.name, COLUMNS[:1], consumed_settings=CONSUMED_SETTINGS)
        setting = "data.target" if spec.split == "train" else f"data.{spec.split}_target"
        raise MeristemError(f"{file.name}: {setting}: missing; set it to the file with the target lines")
    target_path = Path(spec.target).expanduser()
    if not target_path.is_file():
        raise MeristemError(f"data.target: {describe_missing_path(target_path)}")
    return RowStream(
        _iter_pairs(file, file_from_path(target_path), notes), file.name, COLUMNS, consumed_settings=CONSUMED_SETTINGS
    )


def _iter_sources(file: FileSource, notes: ReadNotes) -> Iterator[RawRow]:
    for number, line in iter_lines(file, notes):
        yield RawRow({"source": line}, f"{file.name}:{number}")


def _iter_pairs(source: FileSource, target: FileSource, notes: ReadNotes) -> Iterator[RawRow]:
    counts = [0, 0]
    for source_line, target_line in zip_longest(iter_lines(source, notes), iter_lines(target, notes)):
        counts = [count + (side is not None) for count, side in zip(counts, (source_line, target_line), strict=True)]
        if source_line is not None and target_line is not None:
            yield RawRow({"source": source_line[1], "target": target_line[1]}, f"{source.name}:{source_line[0]}")
    if counts[0] != counts[1]:
        longer = source if counts[0] > counts[1] else target
        raise MeristemError(
            f"{source.name} has {counts[0]:,} lines and {target.name} has {counts[1]:,}: "
            f"{longer.name}:{min(counts) + 1} is the first line without a partner, so earlier pairs may "
            "be misaligned"
        )
