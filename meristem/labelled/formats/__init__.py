"""Format detection for labelled files; one module per format reads rows with their locations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.corpus.read.file_search import glob_files
from meristem.corpus.read.sources import HUB_NAME_PATTERN, describe_missing_path
from meristem.labelled.columns import KNOWN_COLUMN_NAMES, TAG_COLUMNS, TEXT_COLUMNS, WORD_COLUMNS
from meristem.labelled.open_file import file_from_path, read_head
from meristem.labelled.rows import ReadNotes, RowStream
from meristem.labelled.settings import DataSettings

FORMAT_BY_SUFFIX = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "table",
    ".tsv": "table",
    ".tab": "table",
    ".conll": "conll",
    ".conllu": "conll",
    ".iob": "conll",
    ".bio": "conll",
}
TAGGED_SAMPLE_TYPES = {"words", "command"}
TEXT_TARGET_SAMPLE_TYPES = {"source_target", "turns"}
PROMPT_SAMPLE_TYPES = {"prompt", "picture_prompt"}
"""Sample types without required golds: a plain text file is one prompt per line."""
PLAIN_TEXT_SUFFIXES = {"", ".txt", ".text"}
"""File endings of plain text without columns."""


@dataclass(frozen=True)
class SourceSpec:
    """A source to read, and the split and sample type it is read for."""

    source: str
    settings: DataSettings
    sample_type: str
    require_gold: bool = True
    """Whether golds are required; False for files to predict on."""
    target: str | None = None
    """Parallel text: the target file."""
    split: str = "train"
    """The split of a hub data set, if the source names none."""

    @property
    def path(self) -> Path:
        """The source as a path."""
        return Path(self.source).expanduser()


def iter_row_streams(spec: SourceSpec, notes: ReadNotes) -> Iterator[RowStream]:
    """One stream of rows for each file of a source."""
    kind, colon, _ = spec.source.partition(":")
    if colon and kind in ("builtin", "hub"):
        yield _read_format(kind, spec, notes)
    elif spec.path.is_dir():
        yield _read_format("pictures", spec, notes)
    elif spec.path.exists():
        yield _read_format(_detect_format(spec), spec, notes)
    elif any(wildcard in spec.source for wildcard in "*?["):
        for path in _matching_files(spec, notes):
            file_spec = replace(spec, source=str(path), target=None)  # one target file cannot belong to several sources
            yield _read_format(_detect_format(file_spec), file_spec, notes)
    elif HUB_NAME_PATTERN.fullmatch(spec.source) and not spec.path.parent.is_dir() and not spec.path.suffix:
        yield _read_format("hub", spec, notes)
    else:
        raise MeristemError(f"data.{spec.split}: {describe_missing_path(spec.path)}")


def check_source(spec: SourceSpec) -> None:
    """Raise if a source does not exist, without reading it."""
    kind, colon, _ = spec.source.partition(":")
    if colon and kind == "builtin":
        _read_format(kind, spec, ReadNotes())  # its rows are generated lazily
    elif (colon and kind == "hub") or spec.path.exists():
        return
    elif any(wildcard in spec.source for wildcard in "*?["):
        _matching_files(spec, ReadNotes())
    elif not HUB_NAME_PATTERN.fullmatch(spec.source) or spec.path.parent.is_dir() or spec.path.suffix:
        raise MeristemError(f"data.{spec.split}: {describe_missing_path(spec.path)}")


def _read_format(name: str, spec: SourceSpec, notes: ReadNotes) -> RowStream:
    row_stream: RowStream = import_module(f"meristem.labelled.formats.{name}").read(spec, notes)
    return row_stream


def _matching_files(spec: SourceSpec, notes: ReadNotes) -> list[Path]:
    root = Path(spec.path.anchor)
    skipped: Counter[str] = Counter()
    files = glob_files(root, str(spec.path.relative_to(root)), skipped)
    for reason, count in skipped.items():
        notes.add_message(f"{spec.source}: {count:,} skipped {reason}")
    if not files:
        raise MeristemError(f"data.{spec.split}: {spec.source} matches no file")
    return files


def _detect_format(spec: SourceSpec) -> str:
    """The format given by the settings, the file ending, or the first lines."""
    ending = file_from_path(spec.path).extension
    by_ending = FORMAT_BY_SUFFIX.get(ending, "")
    if spec.settings.format != "auto":
        format_names = {"table": by_ending if by_ending in ("parquet", "json", "jsonl") else "table", "squad": "json"}
        return format_names.get(spec.settings.format, spec.settings.format)
    if by_ending in ("parquet", "json", "jsonl", "conll"):
        return by_ending
    if (
        spec.sample_type in TEXT_TARGET_SAMPLE_TYPES
        and not by_ending
        and spec.target
        and Path(spec.target).expanduser().is_file()
    ):
        return "parallel"
    first_lines = read_head(file_from_path(spec.path)).split("\n")
    if (
        spec.sample_type in PROMPT_SAMPLE_TYPES
        and ending in PLAIN_TEXT_SUFFIXES
        and not _is_tabbed_header_line(first_lines[0], spec)
    ):
        return "lines"
    has_header = _is_header_line(first_lines[0], spec)
    if spec.sample_type in TAGGED_SAMPLE_TYPES and not has_header:
        return "conll"
    if by_ending or "\t" in first_lines[0] or has_header:
        return "table"
    if spec.sample_type in TEXT_TARGET_SAMPLE_TYPES and spec.target is not None:
        return "parallel"  # its reader reports what is wrong with the target
    return _plain_lines_format(spec)


def _is_header_line(line: str, spec: SourceSpec) -> bool:
    """Whether a first line holds common column names; tagged data must name both words and tags."""
    cells = {cell.strip(' "').lower() for cell in line.replace(",", "\t").split("\t")}
    settings = spec.settings
    configured_names = {
        name.lower()
        for name in (settings.text, settings.words, settings.label, settings.intent)
        if name and not name.isdigit()
    }
    if spec.sample_type in TAGGED_SAMPLE_TYPES:
        return bool(cells & {*WORD_COLUMNS, *TEXT_COLUMNS, *configured_names}) and (
            not spec.require_gold or bool(cells & {*TAG_COLUMNS, *configured_names})
        )
    return len(cells) > 1 and bool(cells & (KNOWN_COLUMN_NAMES | configured_names))


def _is_tabbed_header_line(line: str, spec: SourceSpec) -> bool:
    """Whether the first line of a plain text file is a tab-separated header; commas are part of a prompt."""
    return "\t" in line and _is_header_line(line.replace(",", " "), spec)


def _plain_lines_format(spec: SourceSpec) -> str:
    """`lines` for files to predict on; raises for training data, which need golds."""
    if not spec.require_gold:
        return "lines"
    target_hint = (
        "data.target=FILE with one target per line, or " if spec.sample_type in TEXT_TARGET_SAMPLE_TYPES else ""
    )
    raise MeristemError(
        f"{spec.source}: no columns in this file; use {target_hint}a file with columns (tsv, csv, jsonl, parquet), "
        "or set data.format=table|conll|squad|parallel|pictures"
    )
