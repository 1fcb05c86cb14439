"""Rows of labelled files: which format a source has, and its records as rows with their locations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meristem import samples
from meristem.config.errors import MeristemError
from meristem.data.byte_stream import UnreadableFileError
from meristem.data.compression import TruncatedFileError
from meristem.data.formats.lines import iter_lines, line_too_long
from meristem.data.formats.pictures import find_caption_file, list_files
from meristem.data.open_source import open_source, read_head
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, ReadOptions, RecordReader
from meristem.data.sources import (
    BuiltinSource,
    FileSource,
    HubSource,
    ParallelSource,
    describe_missing_path,
    resolve_source,
)
from meristem.labelled.class_names import class_name_decoder
from meristem.labelled.columns import KNOWN_COLUMN_NAMES, TAG_COLUMNS, TEXT_COLUMNS, WORD_COLUMNS
from meristem.labelled.rows import RawRow, ReadNotes, RowError, RowStream
from meristem.labelled.settings import DataSettings

TAGGED_SAMPLE_TYPES = {"words", "command"}
TEXT_TARGET_SAMPLE_TYPES = {"source_target", "turns"}
PROMPT_SAMPLE_TYPES = {"prompt", "image_prompt"}
"""Sample types without required golds: a plain text file is one prompt per line."""
PLAIN_TEXT_FORMATS = ("text", "wikitext")
"""Formats of files without columns, in which first lines tell what they hold."""
IMAGE_SAMPLE_TYPES = ("image", "image_prompt")
"""Sample types whose input is an image."""
LINE_COLUMNS = {"source_target": "source", "turns": "turns", "image": "picture", "image_prompt": "picture"}
"""Sample type → the column that it looks for in a file of lines."""
CONSUMED_SETTINGS = {
    "conll": ("words", "label"),
    "lines": ("text", "words", "turns", "image", "label", "target", "intent"),
    "parallel": ("text", "target"),
    "squad": ("question", "passage", "answers", "text"),
}
"""Format → data settings that its reader applied or has no use for, so that they name no columns of its rows."""


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
    skipped: Counter[str] = Counter()
    source_or_paths = resolve_source(spec.source, f"data.{spec.split}", skipped, spec.split)
    for reason, count in skipped.items():
        notes.add_message(f"{spec.source}: {count:,} skipped {reason}")
    if isinstance(source_or_paths, list):
        for path in source_or_paths:
            # one target file cannot belong to several sources
            yield _open_file(spec if path == spec.path else replace(spec, source=str(path), target=None), notes)
        return
    _check_builtin(source_or_paths)
    counts = ReadCounts()
    with report_read_errors(source_or_paths.name, counts, notes):
        reader = open_source(source_or_paths, ReadOptions(), counts)
    yield RowStream(_iter_rows(reader, counts, notes), reader.name)


def check_source(spec: SourceSpec) -> None:
    """Raise if a source does not exist, without reading it."""
    source_or_paths = resolve_source(spec.source, f"data.{spec.split}", Counter())
    if not isinstance(source_or_paths, list):
        _check_builtin(source_or_paths)


def _check_builtin(source: BuiltinSource | HubSource) -> None:
    """Raise if there is no such sample, or if it is plain text; its rows are generated lazily."""
    if isinstance(source, BuiltinSource) and samples.corpus_kind(source.sample) == "text":
        samples.labelled_rows(source.sample)


@contextmanager
def report_read_errors(name: str, counts: ReadCounts, notes: ReadNotes) -> Iterator[None]:
    """Context for reading a source: warnings become notices, unreadable content raises MeristemError."""
    try:
        yield
    except UnreadableFileError as error:
        raise MeristemError(f"{name}{f':{error.line}' * (error.line is not None)}: {error}") from None
    except TruncatedFileError as error:
        raise MeristemError(f"{name}: {error}; none of it was used; download the file again") from None
    finally:
        for warning in counts.warnings:
            notes.add_message(warning)


def iter_text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line of a text file with its number from 1, whatever its encoding and compression."""
    file, counts = FileSource.from_path(path), ReadCounts()
    with report_read_errors(file.name, counts, ReadNotes()):
        for number, line in iter_lines(file, counts):
            if line is None:
                bad_line = line_too_long(f"{file.name}:{number}")
                raise MeristemError(f"{bad_line.location}: {bad_line.detail}")
            yield number, line


def _open_file(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """The rows of one file, or of an image folder's caption file."""
    path = spec.path
    if path.is_dir():
        if spec.sample_type not in IMAGE_SAMPLE_TYPES and spec.settings.format != "pictures":
            raise MeristemError(f"data.{spec.split}: {path} is a folder; give the file in it{list_files(path)}")
        path = find_caption_file(path)
    file, counts = FileSource.from_path(path), ReadCounts()
    with report_read_errors(file.name, counts, notes):
        format_name = "pictures" if spec.path.is_dir() else _detect_format(file, spec)
        source: FileSource | ParallelSource = replace(file, format_override=format_name)
        if format_name == "parallel" and not spec.require_gold and spec.target is None:
            source = replace(file, format_override="lines")
        elif format_name == "parallel":
            source = ParallelSource(file, _target_file(file, spec))
        reader = open_source(source, _read_options(spec), counts)
    consumed_settings = CONSUMED_SETTINGS.get(reader.layout if format_name == "json" else format_name, ())
    return RowStream(_iter_rows(reader, counts, notes), reader.name, reader.columns, consumed_settings)


def _iter_rows(reader: RecordReader, counts: ReadCounts, notes: ReadNotes) -> Iterator[RawRow | RowError]:
    """Records as rows: class ids become class names, translations become columns, bad records become errors."""
    decode_labels = class_name_decoder(reader.features)
    with report_read_errors(reader.name, counts, notes):
        for record in reader.records():
            if isinstance(record, BadRecord):
                yield RowError(f"{record.location}: {record.detail or record.reason}")
            elif isinstance(record.value, dict):
                yield RawRow(_flatten_translation(decode_labels(record.value)), record.location)
            else:
                value_type = type(record.value).__name__
                yield RowError(f"{record.location}: expected an object with columns, not a {value_type}")


def _flatten_translation(values: dict[str, Any]) -> dict[str, Any]:
    """A row with each language under `translation` (the `datasets` layout) as a column of its own."""
    translations = values.get("translation")
    return {**translations, **values} if isinstance(translations, dict) else values


def _read_options(spec: SourceSpec) -> ReadOptions:
    settings = spec.settings
    configured_names = {str(value).lower() for value in settings.model_dump().values() if isinstance(value, str)}
    return ReadOptions(
        header=settings.header,
        known_columns=KNOWN_COLUMN_NAMES | {name for name in configured_names if not name.isdigit()},
        column_numbers={"words": settings.words, "tags": settings.label},
        require_tags=spec.require_gold,
        line_column=LINE_COLUMNS.get(spec.sample_type, "text"),
        annotations=True,
    )


def _target_file(file: FileSource, spec: SourceSpec) -> FileSource:
    """The target file of parallel text."""
    if spec.target is None:
        setting = "data.target" if spec.split == "train" else f"data.{spec.split}_target"
        raise MeristemError(f"{file.name}: {setting}: missing; set it to the file with the target lines")
    target_path = Path(spec.target).expanduser()
    if not target_path.is_file():
        raise MeristemError(f"data.target: {describe_missing_path(target_path)}")
    return FileSource.from_path(target_path)


def _detect_format(file: FileSource, spec: SourceSpec) -> str:
    """The format given by the settings, the file ending, or the first lines."""
    by_ending = "" if file.format in PLAIN_TEXT_FORMATS else file.format
    if spec.settings.format != "auto":
        has_columns = by_ending not in ("", "conll", "table")
        return by_ending if spec.settings.format == "table" and has_columns else spec.settings.format
    if by_ending not in ("", "table"):
        return by_ending
    takes_target = spec.sample_type in TEXT_TARGET_SAMPLE_TYPES
    if takes_target and not by_ending and spec.target and Path(spec.target).expanduser().is_file():
        return "parallel"
    first_line = read_head(file).partition("\n")[0]
    is_prompts = spec.sample_type in PROMPT_SAMPLE_TYPES and (not file.extension or file.format == "text")
    if is_prompts and not _is_tabbed_header_line(first_line, spec):
        return "lines"
    has_header = _is_header_line(first_line, spec)
    if spec.sample_type in TAGGED_SAMPLE_TYPES and not has_header:
        return "conll"
    if by_ending or "\t" in first_line or has_header:
        return "table"
    if takes_target and spec.target is not None:
        return "parallel"  # its reader reports what is wrong with the target
    return _plain_lines_format(spec)


def _is_header_line(line: str, spec: SourceSpec) -> bool:
    """Whether a first line holds common column names; tagged data must name both words and tags."""
    cells = {cell.strip(' "').lower() for cell in line.replace(",", "\t").split("\t")}
    settings = spec.settings
    columns = (settings.text, settings.words, settings.label, settings.intent)
    configured_names = {name.lower() for name in columns if name and not name.isdigit()}
    if spec.sample_type in TAGGED_SAMPLE_TYPES:
        has_words = bool(cells & {*WORD_COLUMNS, *TEXT_COLUMNS, *configured_names})
        return has_words and (not spec.require_gold or bool(cells & {*TAG_COLUMNS, *configured_names}))
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
