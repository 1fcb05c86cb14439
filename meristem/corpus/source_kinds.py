"""Kinds of sources of documents: files, built-in samples, hub data, and pairs of files aligned line by line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meristem.corpus.file_search import displayed_name

FORMATS = {
    ".txt": "text", ".text": "text", ".md": "text",
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".csv": "table", ".tsv": "table",
    ".parquet": "parquet",
    ".tokens": "wikitext",
}
TABLES = {"csv": ("table", ".csv"), "tsv": ("table", ".tsv")}
"""Formats of corpus.format that one reader reads → that reader, and the ending such files usually have."""
COMPRESSIONS = (".gz", ".zst")
READABLE = f"{' '.join(FORMATS)}, each also {' or '.join(COMPRESSIONS)}"


@dataclass(frozen=True)
class File:
    """A file that can be read, by what its ending or corpus.format says it is."""

    path: Path
    ending: str
    compression: str
    size: int
    read_as: str = ""
    """The format that corpus.format names, whatever the ending."""
    encoding: str = ""
    """The codec that corpus.encoding names; found out where it is empty."""

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return displayed_name(self.path)

    @property
    def format(self) -> str:
        """The reader it needs."""
        return TABLES.get(self.read_as, (self.read_as, ""))[0] or FORMATS[self.ending]

    @property
    def table_ending(self) -> str:
        """The ending that says which delimiters a table may have."""
        return TABLES.get(self.read_as, ("", ""))[1] or self.ending


@dataclass(frozen=True)
class Builtin:
    """A sample that exists on every machine."""

    sample: str
    format = "builtin"
    size = 0

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return f"builtin:{self.sample}"


@dataclass(frozen=True)
class Hub:
    """A data set reached through `datasets`."""

    path: str
    config: str | None = None
    split: str = "train"
    format = "hub"
    size = 0

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return f"hub:{self.path}"


@dataclass(frozen=True)
class Aligned:
    """Two files of as many lines, each line of the one belonging to the same line of the other."""

    source: File
    target: File
    format = "aligned"

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return self.source.name

    @property
    def size(self) -> int:
        """Bytes of both."""
        return self.source.size + self.target.size


Source = File | Builtin | Hub | Aligned


def ending_of(path: Path) -> tuple[str, str]:
    """The ending that tells the format, and the one that tells the compression; empty when unknown or none."""
    endings = [suffix.lower() for suffix in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else ""
    known = endings[-1] if endings and endings[-1] in FORMATS else ""
    return known, compression
