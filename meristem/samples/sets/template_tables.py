"""Tables of templates (clauses, questions, commands) of the labelled sets."""

from __future__ import annotations

from pathlib import Path

from meristem.utils import word_tables

WORDS_FOLDER = Path(__file__).parent / "words"


def read_groups(table: str, language: str) -> word_tables.Groups:
    """Templates by [heading]."""
    return word_tables.read_groups(WORDS_FOLDER / f"{table}-{language}.txt")


def read_rows(table: str) -> tuple[tuple[str, ...], ...]:
    """The rows of a table, split at their bars."""
    return word_tables.read_rows(WORDS_FOLDER / f"{table}.txt")
