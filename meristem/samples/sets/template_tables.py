"""Tables of templates (clauses, questions, commands) of the labelled sets."""

from __future__ import annotations

from functools import cache
from pathlib import Path

WORDS_FOLDER = Path(__file__).parent / "words"


@cache
def read_groups(table: str, language: str) -> dict[str, tuple[str, ...]]:
    """Templates by [heading]."""
    templates: dict[str, tuple[str, ...]] = {}
    heading = ""
    for line in read_lines(f"{table}-{language}"):
        if line.startswith("["):
            heading = line.strip("[]")
            templates[heading] = ()
        else:
            templates[heading] += (line,)
    return templates


@cache
def read_rows(table: str) -> tuple[tuple[str, ...], ...]:
    """The rows of a table, split at their bars."""
    return tuple(tuple(cell.strip() for cell in line.split("|")) for line in read_lines(table))


def read_lines(table: str) -> list[str]:
    """Lines that are neither empty nor comments."""
    all_lines = (WORDS_FOLDER / f"{table}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in all_lines if line.strip() and not line.startswith("#")]
