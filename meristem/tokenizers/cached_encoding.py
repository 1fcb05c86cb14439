"""Cached encoding: texts are split where no token can cross, and each distinct piece is encoded once.

Text repeats its words, so looking pieces up in a table is several times faster than encoding every one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from meristem.tokenizers.character_classes import CHINESE, SPACE

Ints = NDArray[np.int32]
Positions = NDArray[np.int64]

BATCH_CHARACTERS = 1 << 21  # characters per lookup: large enough to vectorize, small enough for bounded memory
MAX_PIECES = 1 << 18
MAX_CHARACTERS = 1 << 23

BERT_SPACE = r" \t\n\r"
WORD_PATTERN = re.compile(f"[{SPACE}]*+[^{SPACE}]++|[{SPACE}]++")
"""Split before white space. GPT-2's pattern has white space only at the front of a match, Metaspace likewise."""
BERT_WORD_PATTERN = re.compile(f"[{BERT_SPACE}]*+[^{BERT_SPACE}]++|[{BERT_SPACE}]++")
"""Split before the white space that BERT splits at; BERT removes some other Unicode spaces as control characters."""
BERT_CHINESE_PATTERN = re.compile(f"[{BERT_SPACE}]*+(?:[{CHINESE}]|[^{BERT_SPACE}{CHINESE}]++)|[{BERT_SPACE}]++")
"""Also split around ideographs, which BERT surrounds with spaces."""
CHARACTER_PATTERN = re.compile(r".", re.DOTALL)
LEADING_SPACE = re.compile(f"[{SPACE}]+")
IS_SPACE = np.array([LEADING_SPACE.match(chr(point)) is not None for point in range(0x3002)])  # no white space is above


def cut_pattern(description: dict[str, Any]) -> re.Pattern[str] | None:
    """The pattern by which texts can be split without changing any id; None if unknown for this tokenizer."""
    if any(not token["special"] for token in description["added_tokens"]):
        return None  # such a token is matched in the raw text, across spaces too
    normalizer = description["normalizer"] or {"type": None}
    pre_tokenizer = description["pre_tokenizer"] or {"type": None}
    match pre_tokenizer["type"], normalizer["type"]:
        case "BertPreTokenizer", "BertNormalizer":
            return BERT_CHINESE_PATTERN if normalizer["handle_chinese_chars"] else BERT_WORD_PATTERN
        case "ByteLevel", None | "Lowercase":
            return WORD_PATTERN if pre_tokenizer["use_regex"] and not pre_tokenizer["add_prefix_space"] else None
        case "Sequence", "Sequence":
            if _folds_space(normalizer["normalizers"]) and _marks_space(pre_tokenizer["pretokenizers"]):
                return WORD_PATTERN
        case "Split", None | "Lowercase":
            if pre_tokenizer["pattern"] == {"Regex": r"[\s\S]"} and pre_tokenizer["behavior"] == "Isolated":
                return CHARACTER_PATTERN
    return None


def _folds_space(steps: list[dict[str, Any]]) -> bool:
    """Whether runs of white space become one space, after steps that never change characters across white space."""
    return steps[-1:] == [{"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}] and all(
        step["type"] in {"NFKC", "Lowercase"} for step in steps[:-1]
    )


def _marks_space(steps: list[dict[str, Any]]) -> bool:
    """Whether text is split at marked spaces (Metaspace), and later steps look at single characters only."""
    return (
        [step["type"] for step in steps[:1]] == ["Metaspace"]
        and steps[0]["split"] is True
        and all(step["type"] == "Split" and step["pattern"] == {"Regex": r"\p{P}"} for step in steps[1:])
    )


class PieceNumbers(dict[str, int]):
    """Piece → number; a new piece is numbered at its first lookup and recorded in `unseen`."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: list[str] = []

    def __missing__(self, piece: str) -> int:
        self[piece] = number = len(self)
        self.unseen.append(piece)
        return number


@dataclass(frozen=True)
class PieceTables:
    """The token ids of all pieces seen so far, indexed by piece number."""

    ids: Ints
    """The token ids of all pieces, concatenated."""
    starts: Ints
    """For each id the start of its token, in characters of the piece; empty unless positions are stored."""
    token_starts: Positions
    """Piece → index of its first id; one more entry than there are pieces."""
    lengths: Positions
    """Piece → its length in characters."""


class PieceCache:
    """Encodes batches of texts by table lookup; grows with unseen pieces and is cleared when it becomes too large."""

    def __init__(self, library: tokenizers.Tokenizer, pattern: re.Pattern[str], *, positions: bool) -> None:
        self._library, self._pattern, self._positions = library, pattern, positions
        self._lock = Lock()  # server threads encode concurrently
        self._clear()

    def _clear(self) -> None:
        empty = np.zeros(0, np.int32)
        self._numbers = PieceNumbers()
        self._tables = PieceTables(empty, empty, np.zeros(1, np.int64), np.zeros(0, np.int64))

    def encode(self, texts: Sequence[str]) -> list[Ints]:
        """The token ids of each text."""
        all_ids: list[Ints] = []
        for batch in batch_texts(texts):
            with self._lock:
                pieces, ends = self._look_up(batch)
                indices, token_offsets = self._token_indices(pieces)
                all_ids += np.split(self._tables.ids[indices], token_offsets[ends[:-1]])
        return all_ids

    def encode_with_boundaries(
        self, texts: Sequence[str], boundaries: Sequence[Positions]
    ) -> list[tuple[Ints, Positions]]:
        """The token ids of each text, and for each given character position the first token starting there or later."""
        results: list[tuple[Ints, Positions]] = []
        for batch in batch_texts(texts):
            batch_boundaries = boundaries[len(results) : len(results) + len(batch)]
            pieces, ends = self._look_up(batch)
            indices, token_offsets = self._token_indices(pieces)
            char_offsets = cumulative_offsets(self._tables.lengths[pieces])
            starts = self._tables.starts[indices] + np.repeat(char_offsets[:-1], np.diff(token_offsets))
            first_pieces = np.append(0, ends[:-1])  # text → its first piece
            sizes = [len(positions) for positions in batch_boundaries]  # text → number of positions
            token_positions = np.searchsorted(
                starts, np.concatenate(batch_boundaries) + np.repeat(char_offsets[first_pieces], sizes)
            )
            token_positions -= np.repeat(token_offsets[first_pieces], sizes)
            results += zip(
                np.split(self._tables.ids[indices], token_offsets[first_pieces[1:]]),
                np.split(token_positions, np.cumsum(sizes)[:-1]),
                strict=True,
            )
        return results

    def _look_up(self, texts: Sequence[str]) -> tuple[Positions, Positions]:
        """The piece numbers of all texts, concatenated, and their cumulative count at the end of each text."""
        piece_lists = [self._pattern.findall(text) for text in texts]
        ends = np.cumsum([len(pieces) for pieces in piece_lists], dtype=np.int64)
        if len(self._numbers) > MAX_PIECES or self._tables.lengths.sum() > MAX_CHARACTERS:
            self._clear()
        pieces = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(piece_lists)), np.int64, ends[-1])
        if self._numbers.unseen:
            self._add_unseen()
        return pieces, ends

    def _token_indices(self, pieces: Positions) -> tuple[Positions, Positions]:
        """The table index of each token of these pieces, and the number of tokens before each piece."""
        first_tokens = self._tables.token_starts[pieces]
        counts = self._tables.token_starts[pieces + 1] - first_tokens
        token_offsets = cumulative_offsets(counts)
        return np.repeat(first_tokens - token_offsets[:-1], counts) + np.arange(token_offsets[-1]), token_offsets

    def _add_unseen(self) -> None:
        """Encode the unseen pieces and append them to the tables."""
        unseen, self._numbers.unseen = self._numbers.unseen, []
        encode = self._library.encode_batch if self._positions else self._library.encode_batch_fast
        encodings = encode(unseen, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        counts = np.array([len(tokens) for tokens in ids], np.int64)
        length = np.array([len(piece) for piece in unseen], np.int64)
        starts = self._tables.starts
        if self._positions:
            piece_starts = np.repeat(cumulative_offsets(length)[:-1], counts).astype(np.int32)  # all pieces as one text
            char_shift = piece_starts[:, None]
            offsets = np.array([pair for encoding in encodings for pair in encoding.offsets], np.int32).reshape(-1, 2)
            starts = np.append(starts, (trim_offsets("".join(unseen), offsets + char_shift) - char_shift)[:, 0])
        self._tables = PieceTables(
            ids=np.append(self._tables.ids, np.fromiter(chain.from_iterable(ids), np.int32, counts.sum())),
            starts=starts,
            token_starts=np.append(self._tables.token_starts, self._tables.token_starts[-1] + np.cumsum(counts)),
            lengths=np.append(self._tables.lengths, length),
        )


def batch_texts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in order, in batches of bounded size in characters."""
    start = characters = 0
    for index, text in enumerate(texts):
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield texts[start : index + 1]
            start, characters = index + 1, 0
    if start < len(texts):
        yield texts[start:]


def trim_offsets(text: str, offsets: Sequence[tuple[int, int]] | NDArray[Any]) -> Ints:
    """Offsets without a token's leading white space; a token of only white space keeps it. Shape [tokens, 2]."""
    trimmed_offsets = np.array(offsets, np.int32).reshape(-1, 2)
    text = text[: int(trimmed_offsets.max(initial=0))]  # of a text that is cut, no more than is covered
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    spaces = IS_SPACE[np.minimum(code_points, len(IS_SPACE) - 1)]
    next_visible = np.where(spaces, len(text), np.arange(len(text), dtype=np.int32))
    # position → the next position that is not a space
    next_visible = np.minimum.accumulate(np.append(next_visible, len(text))[::-1])[::-1]
    trimmed = next_visible[trimmed_offsets[:, 0]].astype(np.int32)
    trimmed_offsets[:, 0] = np.where(trimmed < trimmed_offsets[:, 1], trimmed, trimmed_offsets[:, 0])
    return trimmed_offsets


def cumulative_offsets(counts: Positions) -> Positions:
    """Exclusive cumulative sums, with the total as last entry: length n + 1."""
    return np.append(0, np.cumsum(counts))
