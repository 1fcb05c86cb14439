"""Parallel text: two line-aligned files, where line n of one belongs to line n of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from meristem.config.errors import MeristemError
from meristem.data.formats.lines import iter_lines, line_too_long
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.sources import ParallelSource


class ParallelFormat(FileFormat):
    """Pairs of source and target lines."""

    columns = text_columns = ("source", "target")

    def __init__(self, files: ParallelSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(files.source, options, counts)
        self.target = files.target

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """One record per pair of lines; raises at the end if one file has more lines."""
        counts = [0, 0]
        for source, target in zip_longest(iter_lines(self.file, self.counts), iter_lines(self.target, self.counts)):
            counts = [count + (side is not None) for count, side in zip(counts, (source, target), strict=True)]
            if source is None or target is None:
                continue  # the rest is only counted
            location = f"{self.name}:{source[0]}"
            if source[1] is None or target[1] is None:
                yield line_too_long(location if source[1] is None else f"{self.target.name}:{target[0]}")
            else:
                yield Record({"source": source[1], "target": target[1]}, location)
        if counts[0] != counts[1]:
            longer = self.file if counts[0] > counts[1] else self.target
            raise MeristemError(
                f"{self.name} has {counts[0]:,} lines and {self.target.name} has {counts[1]:,}: "
                f"{longer.name}:{min(counts) + 1} is the first line without a partner, so earlier pairs may "
                "be misaligned"
            )
