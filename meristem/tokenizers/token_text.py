"""Human-readable token labels: visible white space, bytes as characters."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from itertools import groupby

from meristem.tokenizers.token_bytes import WORD_END, TokenSpelling, WordEndSpelling

VISIBLE_SPACES = str.maketrans({" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥", "\u3000": "␣"})
"""White space → a visible character."""
PARTIAL_CHARACTER = "…"
"""Marks a token that starts or ends inside a character."""


def display_labels(names: Sequence[str], special: Sequence[bool], spelling: TokenSpelling) -> list[str]:
    """One label per token with visible white space; names of special tokens are unchanged."""
    texts = token_texts(names, special, spelling)
    return [
        token_text if is_special else token_text.translate(VISIBLE_SPACES)
        for token_text, is_special in zip(texts, special, strict=True)
    ]


def token_texts(names: Sequence[str], special: Sequence[bool], spelling: TokenSpelling) -> list[str]:
    """The text of each token (` the`, not `Ġthe`); `##` and the names of special tokens are unchanged."""
    texts: list[str] = []
    for ordinary, group in groupby(zip(names, special, strict=True), key=lambda pair: not pair[1]):
        group_names = [name for name, _ in group]
        if ordinary and spelling.carries_space:
            texts += _piece_characters([spelling.to_bytes(name, previous="") for name in group_names])
        else:
            texts += [_replace_word_end(name, spelling) if ordinary else name for name in group_names]
    return texts


def whole_piece(name: str, spelling: TokenSpelling, *, special: bool) -> str | None:
    """The text of a token whatever stands beside it; none where it begins or ends inside a character."""
    if special or not spelling.carries_space:
        return name if special else _replace_word_end(name, spelling)
    try:
        return spelling.to_bytes(name, previous="").decode()
    except UnicodeDecodeError:
        return None


def _replace_word_end(name: str, spelling: TokenSpelling) -> str:
    """The token with the first GPT's end-of-word mark `</w>` replaced by a space."""
    if isinstance(spelling, WordEndSpelling) and name.endswith(WORD_END):
        return name.removesuffix(WORD_END) + " "
    return name


def _piece_characters(pieces: Sequence[bytes]) -> list[str]:
    """For each piece of bytes the characters that it contains at least partly."""
    spans = list(_iter_characters(b"".join(pieces)))
    texts, start, first = [], 0, 0
    for piece in pieces:
        stop = start + len(piece)
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        last = first
        while last < len(spans) and spans[last][0] < stop:
            last += 1
        piece_spans = spans[first:last]
        text = "".join(character for _, _, character in piece_spans)
        before = PARTIAL_CHARACTER if piece_spans and piece_spans[0][0] < start else ""
        after = PARTIAL_CHARACTER if piece_spans and piece_spans[-1][1] > stop else ""
        texts.append(before + text + after)
        start = stop
    return texts


def _iter_characters(data: bytes) -> Iterator[tuple[int, int, str]]:
    """(first byte, last byte + 1, character) of each character; invalid bytes become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    start = 0
    for index in range(len(data) + 1):
        characters = decoder.decode(data[index : index + 1], final=index == len(data))
        for number, character in enumerate(characters, 1):
            stop = min(index + 1, len(data)) if number == len(characters) else index
            yield start, stop, character
            start = stop
