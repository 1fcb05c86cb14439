"""Cells as the shapes need them: texts, lists of texts, labels, numbers."""

from __future__ import annotations

import ast
import math
from typing import Any

from meristem import bounded
from meristem.labelled.found import Dropped, Flaw
from meristem.labelled.joining import joined

LONGEST_LIST = 1 << 16
"""Characters of a list that is written as Python prints it."""


def nothing(value: Any) -> bool:
    """Whether a cell holds nothing: null, not a number, or only white space."""
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    )


def text(value: Any, what: str, place: str) -> str:
    """A cell as text without white space around it; an empty one drops its row."""
    return raw(value, what, place).strip()


def raw(value: Any, what: str, place: str) -> str:
    """A cell as text, character for character; a list of sentences is joined."""
    if isinstance(value, str) and value and not value.isspace():
        return value
    if nothing(value):
        raise Dropped(f"empty {what}")
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return raw(joined([part.strip() for part in value if part.strip()])[0], what, place)
    if isinstance(value, dict | list | tuple | bytes):
        raise Flaw(f"{place}: the {what} is a {type(value).__name__}, not a text")
    return str(value)


def texts(value: Any, what: str, place: str) -> tuple[str, ...]:
    """A cell as texts: one, or a list of them, also one that is written out in a table's cell."""
    value = listed(value)
    several = value if isinstance(value, list | tuple) else [value]
    found = tuple(text(one, what, place) for one in several if not nothing(one))
    if not found:
        raise Dropped(f"empty {what}")
    return found


def listed(value: Any) -> Any:
    """A list that is written out in a cell, as JSON or as Python prints it; anything else as it is."""
    if not isinstance(value, str) or not (value.strip().startswith(("[", "{")) and value.strip().endswith(("]", "}"))):
        return value
    for parse in (bounded.row, ast.literal_eval):
        if len(value) > LONGEST_LIST and parse is ast.literal_eval:  # which takes a hundred times a text's size
            break
        try:
            found = parse(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | tuple | dict):
            return found
    return value


def label(value: Any) -> Any:
    """A label: text without white space around it, several as a list of texts, a number as it is; else None."""
    if isinstance(value, str):
        stripped = value.strip()
        several = listed(stripped) if stripped.startswith("[") else stripped
        return [str(label(one)) for one in several] if isinstance(several, list | tuple) else stripped or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return [str(label(one)) for one in value]
    return None if nothing(value) or isinstance(value, dict) else value
