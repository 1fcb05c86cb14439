"""Parsing of table cells into the values that sample types need: text, lists of texts, labels, numbers."""

from __future__ import annotations

import ast
import math
from typing import Any

from meristem.data.text_units import join_words
from meristem.labelled.rows import RowError, SkipRow
from meristem.utils import untrusted_files

MAX_LITERAL_CHARACTERS = 1 << 16
"""Longest cell that is parsed as a Python literal."""


def is_empty(value: Any) -> bool:
    """Whether a cell is empty: null, NaN, or only white space."""
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    )


def parse_text(value: Any, field: str, location: str) -> str:
    """A cell as stripped text; raises SkipRow if it is empty."""
    return parse_raw_text(value, field, location).strip()


def parse_raw_text(value: Any, field: str, location: str) -> str:
    """A cell as unchanged text; a list of sentences is joined. Raises SkipRow if it is empty."""
    if isinstance(value, str) and value and not value.isspace():
        return value
    if is_empty(value):
        raise SkipRow(f"empty {field}")
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return parse_raw_text(join_words([part.strip() for part in value if part.strip()])[0], field, location)
    if isinstance(value, dict | list | tuple | bytes):
        raise RowError(f"{location}: the {field} is a {type(value).__name__}, not text")
    return str(value)


def parse_texts(value: Any, field: str, location: str) -> tuple[str, ...]:
    """A cell as a tuple of texts: a single text, a list, or a list serialized in a table cell."""
    value = parse_list(value)
    items = value if isinstance(value, list | tuple) else [value]
    parsed_texts = tuple(parse_text(item, field, location) for item in items if not is_empty(item))
    if not parsed_texts:
        raise SkipRow(f"empty {field}")
    return parsed_texts


def parse_list(value: Any) -> Any:
    """A list or mapping serialized in a cell as JSON or as a Python literal; any other value unchanged."""
    if not isinstance(value, str) or not (value.strip().startswith(("[", "{")) and value.strip().endswith(("]", "}"))):
        return value
    for parse in (untrusted_files.parse_json_line, ast.literal_eval):
        # literal_eval takes about a hundred times the memory of its text
        if len(value) > MAX_LITERAL_CHARACTERS and parse is ast.literal_eval:
            break
        try:
            parsed = parse(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(parsed, list | tuple | dict):
            return parsed
    return value


def parse_label(value: Any) -> Any:
    """A label: stripped text, a list of texts for several labels, or a number; None if there is none."""
    if isinstance(value, str):
        stripped = value.strip()
        items = parse_list(stripped) if stripped.startswith("[") else stripped
        return [str(parse_label(item)) for item in items] if isinstance(items, list | tuple) else stripped or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return [str(parse_label(item)) for item in value]
    return None if is_empty(value) or isinstance(value, dict) else value
