"""Sources: files, folders, globs, built-in samples (builtin:NAME) and Hugging Face datasets (hub:NAME)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl

from meristem.config.errors import MeristemError, did_you_mean
from meristem.data.file_search import displayed_name, glob_files
from meristem.data.records import FILE_FORMATS, FileFormat
from meristem.data.saved_datasets import saved_dataset_files

HUB_NAME_PATTERN = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
TABLE_FORMATS = {"csv": ("table", ".csv"), "tsv": ("table", ".tsv")}
"""Names of formats that share a reader → that reader, and the usual extension of such files."""
COMPRESSIONS = (".gz", ".zst")


@cache
def formats_by_suffix() -> dict[str, str]:
    """File ending → the format of such files, as the modules in formats/ declare them."""
    return {suffix: name for name, cls in FILE_FORMATS.items() for suffix in cls.suffixes}


def format_class(name: str) -> type[FileFormat]:
    """The class of a format, csv and tsv included."""
    return FILE_FORMATS[TABLE_FORMATS.get(name, (name,))[0]]


def format_names(*, text: bool = True, columns: bool = True) -> tuple[str, ...]:
    """Formats of single files, csv and tsv included: those of plain text, those with columns, or both."""
    formats = [name for name, cls in FILE_FORMATS.items() if cls.suffixes and (columns if cls.has_columns else text)]
    return (*formats, *(TABLE_FORMATS if columns else ()))


def readable_suffixes() -> str:
    """The file endings that can be read, for messages."""
    suffixes = sorted(formats_by_suffix(), key=lambda suffix: formats_by_suffix()[suffix] != "text")  # plain text first
    return f"{' '.join(suffixes)}, each also {' or '.join(COMPRESSIONS)}"


@dataclass(frozen=True)
class FileSource:
    """A file, with its format from its extension or from a setting."""

    path: Path
    extension: str
    compression: str
    size: int
    format_override: str = ""
    """The format that a setting gives, whatever the extension."""
    encoding: str = ""
    """The codec that a setting gives; detected if ""."""

    @classmethod
    def from_path(cls, path: Path, format_override: str = "", encoding: str = "") -> FileSource:
        """The source of a path; raises for a pipe, a device or a socket."""
        if not path.is_file():
            raise MeristemError(f"{path}: a pipe, a device or a socket, not a file; save its output to a file first")
        return cls(path, *split_extensions(path), path.stat().st_size, format_override, encoding)

    @property
    def name(self) -> str:
        """Its name in locations and messages."""
        return displayed_name(self.path)

    @property
    def format(self) -> str:
        """The name of its format; "" if the extension is that of none."""
        override = TABLE_FORMATS.get(self.format_override, (self.format_override,))[0]
        return override or formats_by_suffix().get(self.extension, "")

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
class ParallelSource:
    """Two files with the same number of lines: line n of one belongs to line n of the other."""

    source: FileSource
    target: FileSource
    format = "parallel"

    @property
    def name(self) -> str:
        """Its name in locations and messages."""
        return self.source.name

    @property
    def size(self) -> int:
        """Bytes of both files."""
        return self.source.size + self.target.size


Source = FileSource | BuiltinSource | HubSource | ParallelSource


def split_extensions(path: Path) -> tuple[str, str]:
    """The extension for the format, and the one for the compression; "" where there is none."""
    extensions = [suffix.lower() for suffix in path.suffixes]
    compression = extensions.pop() if extensions and extensions[-1] in COMPRESSIONS else ""
    return extensions[-1] if extensions else "", compression


def resolve_source(
    entry: str, setting: str, skipped: Counter[str], default_split: str = "train"
) -> BuiltinSource | HubSource | list[Path]:
    """What one entry of a setting names: a sample, a dataset, a file or folder, or the sorted matches of a glob.

    A name that is no path and has no ending of a file is that of a dataset.
    """
    kind, colon, name = entry.partition(":")
    path = Path(entry).expanduser()
    if colon and kind == "builtin":
        return BuiltinSource(name)
    if colon and kind == "hub":
        return parse_hub_name(name, default_split)
    if path.exists():
        return saved_dataset_files(path, default_split, setting) or [path]
    if any(wildcard in entry for wildcard in "*?["):
        root = Path(path.anchor)
        files = glob_files(root, str(path.relative_to(root)), skipped)
        if not files:
            raise MeristemError(f"{setting}: {entry} matches no file")
        return files
    extension, compression = split_extensions(path)
    is_file_name = compression or extension in formats_by_suffix()
    if HUB_NAME_PATTERN.fullmatch(entry) and not path.parent.is_dir() and not is_file_name:
        return HubSource(entry, split=default_split)
    raise MeristemError(f"{setting}: {describe_missing_path(path)}")


def parse_hub_name(text: str, default_split: str = "train") -> HubSource:
    """The dataset, configuration and split of OWNER/NAME?config=…&split=…."""
    name, _, query = text.partition("?")
    options = dict(parse_qsl(query))
    for key in options:
        if key not in {"config", "split"}:
            raise MeristemError(f"hub:{text}: unknown option {key!r}{did_you_mean(key, ['config', 'split'])}")
    if not name:
        raise MeristemError("corpus.source: hub: needs a name, for instance hub:OWNER/NAME?config=CONFIG&split=train")
    return HubSource(name, options.get("config"), options.get("split", default_split))


def describe_missing_path(path: Path) -> str:
    """Which part of a path does not exist, and similar names."""
    existing = next(parent for parent in path.parents if parent.is_dir())
    missing_part = path.relative_to(existing).parts[0]
    siblings = [entry.name for entry in existing.iterdir() if not entry.name.startswith(".")][:1000]
    if len(siblings) <= 20 or did_you_mean(missing_part, siblings).startswith(","):
        hint = did_you_mean(missing_part, siblings) if siblings else "; that folder is empty"
    else:
        hint = f"; {existing} contains {len(siblings)} others"
    return f"no such file or folder: {path} ({missing_part!r} is not in {existing}{hint})"
