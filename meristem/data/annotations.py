"""Objects of annotation tools in JSON files: recognised by their keys and turned into records with words and tags."""

from __future__ import annotations

from typing import Any

from meristem.data.formats import doccano, label_studio
from meristem.data.records import BadRecord, Record

TOOLS = (label_studio, doccano)


def convert_annotations(value: Any, location: str) -> Record | BadRecord:
    """The record of an annotated object; any other value unchanged."""
    if isinstance(value, dict):
        for tool in TOOLS:
            if tool.recognizes(value):
                try:
                    return Record(tool.to_columns(value), location)
                except (ValueError, TypeError, KeyError) as error:
                    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                    return BadRecord("broken annotation", location, reason)
    return Record(value, location)
