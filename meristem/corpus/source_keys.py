"""Cache keys of sources: what tells whether the documents made of them are still the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec

from meristem import samples
from meristem.corpus.corpus_sources import ResolvedSources, find_sources
from meristem.corpus.file_contents import FileContents
from meristem.corpus.settings import CorpusSettings
from meristem.data.byte_stream import ByteStream, UnreadableFileError
from meristem.data.compression import TruncatedFileError
from meristem.data.csv_dialect import detect_dialect
from meristem.data.encoding import decode_stream
from meristem.data.read_counts import ReadCounts
from meristem.data.sources import BuiltinSource, FileSource, HubSource, ParallelSource, Source

READER_VERSION = 1
"""Increased when reading or cleaning gives another result for the same input, so that old datasets are not reused."""
DEFAULT_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def corpus_digest(settings: CorpusSettings) -> str:
    """A cache key of the documents: the same as long as no setting or file that affects them has changed."""
    resolved = find_sources(settings)
    return fingerprint(settings.cache_key_fields(), keys(resolved.sources), *held_out_keys(resolved))


def held_out_keys(resolved: ResolvedSources) -> list[object]:
    """Keys of separate held-out data, which change with them; empty if shares are held out."""
    return [{split: keys(sources) for split, sources in resolved.held_out.items()}] * bool(resolved.held_out)


def fingerprint(*parts: object) -> str:
    """A cache key of JSON data, READER_VERSION and whether ftfy is installed."""
    payload = [READER_VERSION, find_spec("ftfy") is not None, *parts]
    return hashlib.blake2b(json.dumps(payload, sort_keys=True).encode(), digest_size=16).hexdigest()


def keys(sources: Iterable[Source]) -> list[list[str | int | None]]:
    """What tells whether each source is still the one it was."""
    contents = FileContents()
    source_keys = [_key(source, contents) for source in sources]
    contents.save()
    return source_keys


def source_key(source: Source) -> list[str | int | None]:
    """A key that changes with the contents of a source."""
    return keys([source])[0]


def _key(source: Source, contents: FileContents) -> list[str | int | None]:
    match source:
        case FileSource():
            return _file_key(source, contents)
        case ParallelSource():
            return ["aligned", *_file_key(source.source, contents), *_file_key(source.target, contents)]
        case BuiltinSource():
            return ["builtin", source.sample, samples.digest(source.sample)]
        case HubSource():
            return ["hub", source.path, source.config, source.split]


def _file_key(file: FileSource, contents: FileContents) -> list[str | int | None]:
    known_by = contents.key(file.path)
    return ["file", *known_by, *(_dialect_key(file, tuple(known_by)) if file.format == "table" else [])]


def _dialect_key(file: FileSource, known_by: tuple[str | int | None, ...]) -> list[str | int | None]:
    """The delimiter of a table that older versions read with the wrong one, so that their datasets are not reused.

    The result is cached by `known_by`, the file's own key.
    """
    delimiter = _detect_delimiter(file, known_by)
    return [] if delimiter == DEFAULT_DELIMITERS.get(file.table_extension, "") else [f"delimiter {delimiter}"]


@lru_cache(maxsize=1 << 14)
def _detect_delimiter(file: FileSource, known_by: tuple[str | int | None, ...]) -> str:
    counts = ReadCounts()
    try:
        head = next(decode_stream(ByteStream(file, counts), counts))
    except (UnreadableFileError, TruncatedFileError):
        return DEFAULT_DELIMITERS.get(file.table_extension, "")
    return detect_dialect([line for line in head.split("\n") if line.strip()], file.table_extension).delimiter
