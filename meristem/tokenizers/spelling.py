"""How tokens are written out again: bytes for each token, given the one before."""

from __future__ import annotations

import codecs
import re
from typing import Any, Protocol

from meristem.errors import MeristemError
from meristem.tokenizers.characters import continues_word, is_wide

SUFFIX = "</w>"


class Spelling(Protocol):
    """What a token adds to the text; once written it is never taken back."""

    carries_space: bool
    """Whether the space before a word is part of its first token."""

    def spell(self, token: str, before: str | None) -> bytes:
        """The bytes of a token after another (None: it is the first)."""

    def begins(self, token: str) -> bool:
        """Whether the token begins a word."""


class Spaced:
    """WordPiece and whole words: spaces between words, none before `##`, around Chinese, or where BERT cleans up."""

    carries_space = False

    def spell(self, token: str, before: str | None) -> bytes:
        """The token, with a space before it unless the two belong together."""
        if token.startswith("##") and len(token) > 2:
            return token[2:].encode()
        if before is None or token in {".", ",", "?", "!", "'"} or before == "'":
            return token.encode()
        apart = not any(is_wide(character) for character in before[-1:] + token[:1])
        return (" " * apart + token).encode()

    def begins(self, token: str) -> bool:
        """Everything begins a word but what is marked `##`."""
        return not token.startswith("##") or len(token) == 2


class Closed(Spaced):
    """The first GPT's: a token that ends a word is marked `</w>`, and the next one begins another."""

    def spell(self, token: str, before: str | None) -> bytes:
        """The token, with a space before it where the last one ended its word."""
        if before is not None and not before.endswith(SUFFIX):
            return token.removesuffix(SUFFIX).encode()
        return super().spell(token.removesuffix(SUFFIX), before and before.removesuffix(SUFFIX))

    def begins(self, token: str) -> bool:
        """What is marked is the end of a word, so that any token may begin one."""
        return True


class Joined:
    """Characters: tokens follow one another as they are."""

    carries_space = False

    def spell(self, token: str, before: str | None) -> bytes:
        """The token itself."""
        return token.encode()

    def begins(self, token: str) -> bool:
        """A letter, digit or mark goes on with the word before it; spaces, punctuation and ideographs begin one."""
        return _begins(self.spell(token, before=""))


class Bytes:
    """Byte-level BPE: each character of a token stands for one byte, so that decoding is exact."""

    carries_space = True

    def __init__(self) -> None:
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes GPT-2 shows as themselves
        hidden = [byte for byte in range(256) if byte not in shown]
        self._byte = {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(hidden)}

    def spell(self, token: str, before: str | None) -> bytes:
        """The token's bytes; a name outside the byte alphabet (some special tokens) is written as it is."""
        try:
            return bytes([self._byte[character] for character in token])
        except KeyError:
            return token.encode()

    def begins(self, token: str) -> bool:
        """A token beginning with a space, punctuation or ideograph begins a word; letters go on with one."""
        return _begins(self.spell(token, before=""))


class Marked:
    """Unigram and its like: `▁` stands for a space, `<0xE4>` for a byte that has no token."""

    carries_space = True

    def spell(self, token: str, before: str | None) -> bytes:
        """The token with its marks as spaces, but for the one before the first word."""
        if byte := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token):
            return bytes.fromhex(byte[1])
        text = token.replace("▁", " ")
        return (text.removeprefix(" ") if before is None else text).encode()

    def begins(self, token: str) -> bool:
        """As for bytes: a space, punctuation or ideograph begins a word."""
        return _begins(self.spell(token, before=""))


class Stream:
    """Text from tokens one at a time: `push` gives only what is final, `finish` what an incomplete end leaves."""

    def __init__(self, spelling: Spelling, tokens: list[str], skip: frozenset[int]) -> None:
        self._spelling, self._tokens, self._skip = spelling, tokens, skip
        self._before: str | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text this token completes; a character of several bytes comes whole, with its last one.

        A number beyond the vocabulary spells nothing: published weights often have more rows than their tokenizer.
        """
        if token in self._skip or token >= len(self._tokens):
            return ""
        name = self._tokens[token]
        data = self._spelling.spell(name, self._before)
        self._before = name
        return self._decoder.decode(data)

    def finish(self) -> str:
        """A replacement character where the text ends inside a character."""
        return self._decoder.decode(b"", final=True)


def spelling_of(description: dict[str, Any], place: str) -> Spelling:
    """How a tokenizer.json's tokens are written out, by its decoder or, without one, its pre-tokenizer and model."""
    decoder, split = description.get("decoder") or {}, description.get("pre_tokenizer") or {}
    kinds = _types(decoder) or _types(split)
    if kinds & {"ByteLevel"}:
        return Bytes()
    if kinds & {"Metaspace", "ByteFallback"}:
        return Marked()
    if "BPEDecoder" in kinds and decoder.get("suffix") == SUFFIX:
        return Closed()
    if "WordPiece" in kinds or description["model"].get("type") == "WordPiece":
        return Spaced()
    if kinds <= {"Fuse", "Split"}:
        return Joined()
    if kinds <= {"BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation"}:
        return Spaced()
    raise MeristemError(f"{place}: how its tokens are written out ({', '.join(sorted(kinds))}) is not known here; "
                        "use a WordPiece, ByteLevel, Metaspace or Fuse decoder")


def _types(part: dict[str, Any]) -> set[str]:
    inner = part.get("decoders") or part.get("pretokenizers") or [part]
    return {item["type"] for item in inner if "type" in item}


def _begins(data: bytes) -> bool:
    text = data.decode("utf-8", "replace")
    if text[:1] == "\ufffd":  # part of a character: only its first byte can tell
        return data[0] in range(0xE2, 0xEA) or data[0] in {0xEF, 0xF0}  # where ideographs and wide punctuation are
    return not text or not continues_word(text[0])
