"""Plain tables of clauses, questions and commands that only labelled sets use."""

from __future__ import annotations

from functools import cache
from pathlib import Path

WORDS = Path(__file__).parent / "words"


@cache
def groups(table: str, language: str) -> dict[str, tuple[str, ...]]:
    """Templates under their [headings]."""
    found: dict[str, tuple[str, ...]] = {}
    heading = ""
    for line in lines(f"{table}-{language}"):
        if line.startswith("["):
            heading = line.strip("[]")
            found[heading] = ()
        else:
            found[heading] += (line,)
    return found


@cache
def rows(table: str) -> tuple[tuple[str, ...], ...]:
    """A table's lines cut at their bars."""
    return tuple(tuple(cell.strip() for cell in line.split("|")) for line in lines(table))


def lines(table: str) -> list[str]:
    """Lines that are neither empty nor comments."""
    whole = (WORDS / f"{table}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in whole if line.strip() and not line.startswith("#")]
