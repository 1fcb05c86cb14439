"""Built-in labelled data sets (builtin:NAME), generated on the fly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem import samples
from meristem.corpus.read.images import builtin_image_reference
from meristem.labelled.formats import SourceSpec
from meristem.labelled.rows import RawRow, ReadNotes, RowStream


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """The rows of a built-in data set, numbered from 1."""
    name = spec.source.removeprefix("builtin:")
    return RowStream(
        (RawRow(row, f"{spec.source}#{number}") for number, row in enumerate(_iter_values(name), 1)), spec.source, ()
    )


def _iter_values(name: str) -> Iterator[dict[str, Any]]:
    match samples.corpus_kind(name):
        case "pairs":
            return (
                {"source": source_text, "target": target_text}
                for source_text, target_text in samples.paired_documents(name)
            )
        case "pictures":
            return (
                {"picture": builtin_image_reference(source_text), "caption": target_text}
                for source_text, target_text in samples.paired_documents(name)
            )
    return samples.labelled_rows(name)
