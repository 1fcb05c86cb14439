"""Splits text into numbered lines of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_LINE_CHARS = 16_000_000
"""Maximum characters of a line; longer ones are skipped, and counted by the reader."""


def number_lines(texts: Iterable[str]) -> Iterator[tuple[int, str | None]]:
    """(number, line without newline); None in place of a line that is too long."""
    rest, number, overlong = "", 1, False
    for text in texts:
        if overlong:  # skip the rest of the line
            _, newline, text = text.partition("\n")
            if not newline:
                continue
            yield number, None
            number, overlong = number + 1, False
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield number, None if len(line) > MAX_LINE_CHARS else line
            number += 1
        if len(rest) > MAX_LINE_CHARS:
            rest, overlong = "", True
    if rest or overlong:
        yield number, None if overlong else rest
