"""JSON files: SQuAD articles, a list of objects, or JSON lines with a .json ending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meristem.config.errors import MeristemError
from meristem.labelled.formats import SourceSpec, jsonl, squad
from meristem.labelled.open_file import file_from_path, read_text
from meristem.labelled.rows import RawRow, ReadNotes, RowError, RowStream
from meristem.utils import untrusted_files


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """The objects of a list, or the questions of SQuAD articles."""
    file = file_from_path(spec.path)
    content = read_text(file, notes)
    try:
        records = untrusted_files.parse_json_line(content)
    except ValueError as error:
        lines = content.lstrip().split("\n", 1)
        if len(lines) > 1 and _is_object(lines[0]):
            return jsonl.read(spec, notes)
        line = getattr(error, "lineno", 1)
        raise MeristemError(f"{file.name}:{line}: broken JSON ({error})") from None
    if isinstance(records, dict) and isinstance(records.get("data"), list):
        records = records["data"]
    elif (
        isinstance(records, dict)
        and len(lists := [value for value in records.values() if isinstance(value, list)]) == 1
    ):
        records = lists[0]
    if not isinstance(records, list):
        raise MeristemError(f"{file.name}: expected a list of objects or SQuAD articles, not a single object")
    if any(isinstance(record, dict) and "paragraphs" in record for record in records):
        return RowStream(
            squad.iter_questions(records, file.name),
            file.name,
            squad.COLUMNS,
            consumed_settings=squad.CONSUMED_SETTINGS,
        )
    if spec.settings.format == "squad":
        raise MeristemError(f"{file.name}: no articles with paragraphs, as SQuAD files have; try data.format=table")
    return RowStream(_iter_rows(records, file.name), file.name)


def _iter_rows(records: list[Any], name: str) -> Iterator[RawRow | RowError]:
    for number, record in enumerate(records, 1):
        location = f"{name}#{number}"
        if isinstance(record, dict):
            yield RawRow(jsonl.flatten_translation(record), location)
        else:
            yield RowError(f"{location}: expected an object with columns, not a {type(record).__name__}")


def _is_object(line: str) -> bool:
    try:
        return isinstance(untrusted_files.parse_json_line(line), dict)
    except ValueError:
        return False
