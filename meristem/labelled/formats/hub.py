"""Data sets of the Hugging Face Hub (hub:OWNER/NAME); class ids are replaced by class names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meristem.corpus.read.formats import hub as reader
from meristem.corpus.read.source_kinds import HubSource
from meristem.corpus.read.sources import parse_hub_name
from meristem.labelled.class_names import class_name_decoder
from meristem.labelled.formats import SourceSpec, jsonl
from meristem.labelled.rows import RawRow, ReadNotes, RowStream


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """One split of a data set: the one in its name (?split=…), or the split it is read for."""
    name = spec.source.removeprefix("hub:")
    dataset = parse_hub_name(name)
    dataset = dataset if "split=" in name.partition("?")[2] else replace(dataset, split=spec.split)
    reader_rows = reader.open_hub(dataset)
    return RowStream(_iter_rows(dataset, reader_rows), dataset.name, ())


def _iter_rows(dataset: HubSource, reader_rows: reader.HubRows) -> Iterator[RawRow]:
    decode_labels = class_name_decoder(reader_rows.features)
    for number, row in enumerate(reader_rows.rows, 1):
        yield RawRow(jsonl.flatten_translation(decode_labels(row)), f"{dataset.name}#{number}")
