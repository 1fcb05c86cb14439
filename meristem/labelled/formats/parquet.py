"""Parquet files; class ids are replaced by the names that the `datasets` library stores in the metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem.corpus.read.formats import parquet
from meristem.corpus.read.source_kinds import FileSource
from meristem.labelled.class_names import class_name_decoder
from meristem.labelled.formats import SourceSpec, jsonl
from meristem.labelled.open_file import file_from_path, report_read_errors
from meristem.labelled.rows import RawRow, ReadNotes, RowStream
from meristem.utils import untrusted_files


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """The rows of a file, numbered from 1."""
    file = file_from_path(spec.path)
    with report_read_errors(file, notes) as account, parquet.open_parquet(file, account) as table:
        return RowStream(_iter_rows(file, notes), file.name, tuple(table.schema.names))


def _iter_rows(file: FileSource, notes: ReadNotes) -> Iterator[RawRow]:
    with report_read_errors(file, notes) as account, parquet.open_parquet(file, account) as table:
        decode_labels = class_name_decoder(_features(table.schema.metadata or {}))
        for number, row in enumerate(parquet.iter_rows(table), 1):
            yield RawRow(jsonl.flatten_translation(decode_labels(row)), f"{file.name}#{number}")


def _features(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    try:
        features = untrusted_files.parse_strict_json(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}
