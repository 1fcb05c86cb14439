"""Text in lines of bounded length, numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LONGEST_LINE = 16_000_000
"""Characters of a line that are held in memory at once; a longer one is passed over, and its reader counts it."""


def numbered(texts: Iterable[str]) -> Iterator[tuple[int, str | None]]:
    """Each line with its number, without its newline; None in place of a line that is too long."""
    rest, number, overlong = "", 1, False
    for text in texts:
        if overlong:  # nothing of it is kept until it ends
            _, ended, text = text.partition("\n")
            if not ended:
                continue
            yield number, None
            number, overlong = number + 1, False
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield number, None if len(line) > LONGEST_LINE else line
            number += 1
        if len(rest) > LONGEST_LINE:
            rest, overlong = "", True
    if rest or overlong:
        yield number, None if overlong else rest
