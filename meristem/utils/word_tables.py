"""Tables of words and templates in text files: rows split at bars, and lines grouped under a [heading]."""

from __future__ import annotations

from functools import cache
from pathlib import Path

Groups = dict[str, tuple[str, ...]]


@cache
def read_rows(path: Path) -> tuple[tuple[str, ...], ...]:
    """The rows of a table, split at their bars."""
    return tuple(tuple(cell.strip() for cell in line.split("|")) for line in _read_lines(path))


@cache
def read_groups(path: Path) -> Groups:
    """The lines of a table by [heading]."""
    groups: Groups = {}
    heading = ""
    for line in _read_lines(path):
        if line.startswith("["):
            heading = line.strip("[]")
            groups[heading] = ()
        else:
            groups[heading] += (line,)
    return groups


def _read_lines(path: Path) -> list[str]:
    """Lines that are neither empty nor comments."""
    all_lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in all_lines if line.strip() and not line.startswith("#")]
