"""Tokens as a person reads them: what a vocabulary's marks stand for, with spaces that can be seen."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from itertools import groupby

from meristem.tokenizers.spelling import SUFFIX, Closed, Spelling

SEEN = str.maketrans({" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥", "\u3000": "␣"})
"""White space, each kind with a sign that has an outline."""
SPLIT = "…"
"""Stands where a token ends, or begins, inside a character."""


def labels(names: Sequence[str], special: Sequence[bool], spelling: Spelling) -> list[str]:
    """One label per token, white space as signs; names of special tokens stay as they are."""
    shown = pieces(names, special, spelling)
    return [one if alone else one.translate(SEEN) for one, alone in zip(shown, special, strict=True)]


def pieces(names: Sequence[str], special: Sequence[bool], spelling: Spelling) -> list[str]:
    """The text of each token (` the`, not `Ġthe`); `##` and the names of special tokens stay as they are."""
    out: list[str] = []
    for ordinary, group in groupby(zip(names, special, strict=True), key=lambda one: not one[1]):
        some = [name for name, _ in group]
        if ordinary and spelling.carries_space:
            out += _characters([spelling.spell(name, before="") for name in some])
        else:
            out += [_plain(name, spelling) if ordinary else name for name in some]
    return out


def whole_piece(name: str, spelling: Spelling, *, special: bool) -> str | None:
    """The text of a token whatever stands beside it; none where it begins or ends inside a character."""
    if special or not spelling.carries_space:
        return name if special else _plain(name, spelling)
    try:
        return spelling.spell(name, before="").decode()
    except UnicodeDecodeError:
        return None


def _plain(name: str, spelling: Spelling) -> str:
    """The name itself, `##` kept; the first GPT's mark at the end of a word is the space after it."""
    return name.removesuffix(SUFFIX) + " " if isinstance(spelling, Closed) and name.endswith(SUFFIX) else name


def _characters(pieces: Sequence[bytes]) -> list[str]:
    """To each piece of bytes the characters it has a part in."""
    spans = list(_decoded(b"".join(pieces)))
    out, start, first = [], 0, 0
    for piece in pieces:
        stop = start + len(piece)
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        last = first
        while last < len(spans) and spans[last][0] < stop:
            last += 1
        mine = spans[first:last]
        text = "".join(character for _, _, character in mine)
        before = SPLIT if mine and mine[0][0] < start else ""
        after = SPLIT if mine and mine[-1][1] > stop else ""
        out.append(before + text + after)
        start = stop
    return out


def _decoded(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Every character with its first byte and the one after its last; what is none becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    start = 0
    for at in range(len(data) + 1):
        found = decoder.decode(data[at : at + 1], final=at == len(data))
        for number, character in enumerate(found, 1):
            stop = min(at + 1, len(data)) if number == len(found) else at
            yield start, stop, character
            start = stop
