"""Decoding of single tokens to bytes, given the previous token, and streaming detokenization."""

from __future__ import annotations

import codecs
import re
from typing import Any, Protocol

from meristem.config.errors import MeristemError
from meristem.tokenizers.character_classes import continues_word, is_wide

WORD_END = "</w>"


class TokenSpelling(Protocol):
    """Decodes one token to bytes; output is append-only, so that text can be streamed."""

    carries_space: bool
    """Whether a word's first token includes the space before it."""

    def to_bytes(self, token: str, previous: str | None) -> bytes:
        """The bytes of a token that follows `previous` (None: it is the first)."""

    def starts_word(self, token: str) -> bool:
        """Whether the token starts a word."""


class WordPieceSpelling:
    """WordPiece and whole words: spaces between words, but not before `##`, around Chinese, or around punctuation."""

    carries_space = False

    def to_bytes(self, token: str, previous: str | None) -> bytes:
        """The token, with a space before it unless the two belong together."""
        if token.startswith("##") and len(token) > 2:
            return token[2:].encode()
        if previous is None or token in {".", ",", "?", "!", "'"} or previous == "'":
            return token.encode()
        needs_space = not any(is_wide(character) for character in previous[-1:] + token[:1])
        return (" " * needs_space + token).encode()

    def starts_word(self, token: str) -> bool:
        """Every token starts a word except those with `##`."""
        return not token.startswith("##") or len(token) == 2


class WordEndSpelling(WordPieceSpelling):
    """BPE of the first GPT: `</w>` marks the last token of a word."""

    def to_bytes(self, token: str, previous: str | None) -> bytes:
        """The token, with a space before it if the previous one ended a word."""
        if previous is not None and not previous.endswith(WORD_END):
            return token.removesuffix(WORD_END).encode()
        return super().to_bytes(token.removesuffix(WORD_END), previous and previous.removesuffix(WORD_END))

    def starts_word(self, token: str) -> bool:
        """Only ends of words are marked, so any token may start one."""
        return True


class CharacterSpelling:
    """Characters: tokens are concatenated."""

    carries_space = False

    def to_bytes(self, token: str, previous: str | None) -> bytes:
        """The token itself."""
        return token.encode()

    def starts_word(self, token: str) -> bool:
        """Spaces, punctuation and ideographs start a word; a letter, digit or combining mark continues one."""
        data = self.to_bytes(token, previous="")
        text = data.decode("utf-8", "replace")
        if text[:1] == "\ufffd":  # part of a character: its first byte tells ideographs and full-width punctuation
            return data[0] in {*range(0xE2, 0xEA), 0xEF, 0xF0}
        return not text or not continues_word(text[0])


class ByteLevelSpelling(CharacterSpelling):
    """Byte-level BPE: each character of a token represents one byte, so that decoding is exact."""

    carries_space = True

    def __init__(self) -> None:
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that GPT-2 shows as themselves
        remapped = [byte for byte in range(256) if byte not in printable]
        self._byte_of_character = {chr(byte): byte for byte in printable} | {
            chr(256 + n): byte for n, byte in enumerate(remapped)
        }

    def to_bytes(self, token: str, previous: str | None) -> bytes:
        """The token's bytes; a name outside the byte alphabet (some special tokens) is encoded as UTF-8."""
        try:
            return bytes([self._byte_of_character[character] for character in token])
        except KeyError:
            return token.encode()


class MetaspaceSpelling(CharacterSpelling):
    """SentencePiece models: `▁` is a space, `<0xE4>` a byte without its own token (byte fallback)."""

    carries_space = True

    def to_bytes(self, token: str, previous: str | None) -> bytes:
        """The token with `▁` as spaces, except the one before the first word."""
        if byte := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token):
            return bytes.fromhex(byte[1])
        text = token.replace("▁", " ")
        return (text.removeprefix(" ") if previous is None else text).encode()


class StreamDecoder:
    """Streaming detokenization: `push` returns the text that is final, `finish` the rest of an incomplete end."""

    def __init__(self, spelling: TokenSpelling, tokens: list[str], skipped_ids: frozenset[int]) -> None:
        self._spelling, self._tokens, self._skipped_ids = spelling, tokens, skipped_ids
        self._previous: str | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes; a multi-byte character is returned with its last byte.

        An id beyond the vocabulary gives no text: published weights often have more rows than tokens.
        """
        if token_id in self._skipped_ids or token_id >= len(self._tokens):
            return ""
        name = self._tokens[token_id]
        data = self._spelling.to_bytes(name, self._previous)
        self._previous = name
        return self._decoder.decode(data)

    def finish(self) -> str:
        """A replacement character if the text ends inside a character, else ""."""
        return self._decoder.decode(b"", final=True)


def select_spelling(description: dict[str, Any], source: str) -> TokenSpelling:
    """How to decode the tokens of a tokenizer.json: by its decoder or, without one, its pre-tokenizer and model."""
    decoder, pre_tokenizer = description.get("decoder") or {}, description.get("pre_tokenizer") or {}
    kinds = _step_types(decoder) or _step_types(pre_tokenizer)
    if kinds & {"ByteLevel"}:
        return ByteLevelSpelling()
    if kinds & {"Metaspace", "ByteFallback"}:
        return MetaspaceSpelling()
    if "BPEDecoder" in kinds and decoder.get("suffix") == WORD_END:
        return WordEndSpelling()
    if "WordPiece" in kinds or description["model"].get("type") == "WordPiece":
        return WordPieceSpelling()
    if kinds <= {"Fuse", "Split"}:
        return CharacterSpelling()
    if kinds <= {"BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation"}:
        return WordPieceSpelling()
    raise MeristemError(
        f"{source}: unsupported decoder ({', '.join(sorted(kinds))}); "
        "use a WordPiece, ByteLevel, Metaspace or Fuse decoder"
    )


def _step_types(part: dict[str, Any]) -> set[str]:
    inner = part.get("decoders") or part.get("pretokenizers") or [part]
    return {item["type"] for item in inner if "type" in item}
