"""Kinds of document sources: files, built-in samples, Hugging Face datasets, and pairs of line-aligned files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meristem.corpus.read.file_search import displayed_name

FORMATS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "table",
    ".tsv": "table",
    ".parquet": "parquet",
    ".tokens": "wikitext",
}
TABLE_FORMATS = {"csv": ("table", ".csv"), "tsv": ("table", ".tsv")}
"""Values of corpus.format that share a reader → that reader, and the usual extension of such files."""
COMPRESSIONS = (".gz", ".zst")
READABLE_FORMATS = f"{' '.join(FORMATS)}, each also {' or '.join(COMPRESSIONS)}"


@dataclass(frozen=True)
class FileSource:
    """A readable file, with its format from its extension or corpus.format."""

    path: Path
    extension: str
    compression: str
    size: int
    format_override: str = ""
    """The format set in corpus.format, whatever the extension."""
    encoding: str = ""
    """The codec set in corpus.encoding; detected if ""."""

    @property
    def name(self) -> str:
        """Its name in locations and messages."""
        return displayed_name(self.path)

    @property
    def format(self) -> str:
        """The name of its reader."""
        return TABLE_FORMATS.get(self.format_override, (self.format_override, ""))[0] or FORMATS[self.extension]

    @property
    def table_extension(self) -> str:
        """The extension that determines the possible delimiters of a table."""
        return TABLE_FORMATS.get(self.format_override, ("", ""))[1] or self.extension


@dataclass(frozen=True)
class BuiltinSource:
    """A built-in sample, generated on any machine."""

    sample: str
    format = "builtin"
    size = 0

    @property
    def name(self) -> str:
        """Its name in locations and messages."""
        return f"builtin:{self.sample}"


@dataclass(frozen=True)
class HubSource:
    """A Hugging Face dataset, read through `datasets`."""

    path: str
    config: str | None = None
    split: str = "train"
    format = "hub"
    size = 0

    @property
    def name(self) -> str:
        """Its name in locations and messages."""
        return f"hub:{self.path}"


@dataclass(frozen=True)
class AlignedSource:
    """Two files with the same number of lines: line n of one belongs to line n of the other."""

    source: FileSource
    target: FileSource
    format = "aligned"

    @property
    def name(self) -> str:
        """Its name in locations and messages."""
        return self.source.name

    @property
    def size(self) -> int:
        """Bytes of both files."""
        return self.source.size + self.target.size


Source = FileSource | BuiltinSource | HubSource | AlignedSource


def split_extensions(path: Path) -> tuple[str, str]:
    """The extension for the format, and the one for the compression; "" if unknown or none."""
    extensions = [suffix.lower() for suffix in path.suffixes]
    compression = extensions.pop() if extensions and extensions[-1] in COMPRESSIONS else ""
    extension = extensions[-1] if extensions and extensions[-1] in FORMATS else ""
    return extension, compression
