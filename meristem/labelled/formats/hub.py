"""Data sets of the hub, by name; numbers that stand for labels come with their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meristem.corpus.readers import hub as reader
from meristem.corpus.source_kinds import Hub
from meristem.corpus.sources import hub
from meristem.labelled.classes import naming
from meristem.labelled.formats import Asked, jsonl
from meristem.labelled.found import Found, Notes, Rows


def read(asked: Asked, notes: Notes) -> Rows:
    """One split of a data set: the one its name asks for, or the one it is to be used as."""
    name = asked.source.removeprefix("hub:")
    found = hub(name)
    found = found if "split=" in name.partition("?")[2] else replace(found, split=asked.split)
    opened = reader.opened(found)
    return Rows(_found(found, opened), found.name, ())


def _found(found: Hub, opened: reader.Opened) -> Iterator[Found]:
    name = naming(opened.features)
    for number, row in enumerate(opened.rows, 1):
        yield Found(jsonl.flat(name(row)), f"{found.name}#{number}")
