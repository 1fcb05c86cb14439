"""Parquet; label names that `datasets` left in the file are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem import bounded
from meristem.corpus.readers import parquet
from meristem.corpus.source_kinds import File
from meristem.labelled.classes import naming
from meristem.labelled.formats import Asked, jsonl
from meristem.labelled.found import Found, Notes, Rows
from meristem.labelled.opening import file_of, readable


def read(asked: Asked, notes: Notes) -> Rows:
    """The rows of a file, by number."""
    file = file_of(asked.path)
    with readable(file, notes) as account, parquet.opened(file, account) as table:
        return Rows(_found(file, notes), file.name, tuple(table.schema.names))


def _found(file: File, notes: Notes) -> Iterator[Found]:
    with readable(file, notes) as account, parquet.opened(file, account) as table:
        name = naming(_features(table.schema.metadata or {}))
        for number, row in enumerate(parquet.rows(table), 1):
            yield Found(jsonl.flat(name(row)), f"{file.name}#{number}")


def _features(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    try:
        features = bounded.strict(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}
