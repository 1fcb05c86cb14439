"""Words and the text they stand in: joined where only words are known, found again where the text is."""

from __future__ import annotations

import re
from collections.abc import Sequence

IDEOGRAPHS = "\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff65\U00020000-\U0003ffff"
IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")

Offsets = tuple[tuple[int, int], ...]
"""Where each word begins and ends in its text."""


def joined(words: Sequence[str]) -> tuple[str, Offsets]:
    """Words as one text: a space between them, but none between ideographs, nor where each character is a word."""
    whole = "".join(words)
    foreign = not whole.isascii()
    spelled = foreign and sum(len(word) == 1 for word in words) >= 0.9 * len(words) and IDEOGRAPH.search(whole)
    parts: list[str] = []
    offsets: list[tuple[int, int]] = []
    at, before = 0, ""
    for word in words:
        if before and not spelled and not (foreign and IDEOGRAPH.match(before[-1]) and IDEOGRAPH.match(word)):
            parts.append(" ")
            at += 1
        parts.append(word)
        offsets.append((at, at + len(word)))
        at, before = at + len(word), word
    return "".join(parts), tuple(offsets)


def located(words: Sequence[str], text: str) -> Offsets | None:
    """Where the words stand in a text, one after the other; nothing where they do not."""
    offsets, at = [], 0
    for word in words:
        start = text.find(word, at)
        if start < 0 or text[at:start].strip():  # only white space is left out between words
            return None
        at = start + len(word)
        offsets.append((start, at))
    return tuple(offsets) if not text[at:].strip() else None


def cut(text: str) -> tuple[tuple[str, ...], Offsets]:
    """A text's words as white space divides them."""
    found = list(re.finditer(r"\S+", text))
    return tuple(match.group() for match in found), tuple(match.span() for match in found)
