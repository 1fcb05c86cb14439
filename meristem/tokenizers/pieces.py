"""Encoding by pieces: a text is cut where no token can cross, and each distinct piece is encoded once.

Running text repeats its words, so that looking pieces up is several times faster than encoding them all again.
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

from meristem.tokenizers.characters import CHINESE, SPACE

Ints = NDArray[np.int32]
Places = NDArray[np.int64]

GROUP = 1 << 21  # characters looked up at once: large enough for vectors, small enough for flat memory
MOST_PIECES = 1 << 18
MOST_CHARACTERS = 1 << 23

BERT_SPACE = r" \t\n\r"
WORDS = re.compile(f"[{SPACE}]*+[^{SPACE}]++|[{SPACE}]++")
"""Cut before white space. GPT-2's pattern has white space only at the front of a match, Metaspace likewise."""
BERT_WORDS = re.compile(f"[{BERT_SPACE}]*+[^{BERT_SPACE}]++|[{BERT_SPACE}]++")
"""Cut before the white space that BERT splits at; it removes some of Unicode's other spaces as control characters."""
BERT_CHINESE = re.compile(f"[{BERT_SPACE}]*+(?:[{CHINESE}]|[^{BERT_SPACE}{CHINESE}]++)|[{BERT_SPACE}]++")
"""Also cut around ideographs, which BERT surrounds with spaces."""
CHARACTERS = re.compile(r".", re.DOTALL)
LEADING = re.compile(f"[{SPACE}]+")
SPACES = np.array([LEADING.match(chr(point)) is not None for point in range(0x3002)])  # none is above


def cuts(description: dict[str, Any]) -> re.Pattern[str] | None:
    """Where texts may be cut without changing any id, or None where that is not known for this tokenizer."""
    if any(not token["special"] for token in description["added_tokens"]):
        return None  # such a token is matched in the raw text, across spaces too
    normalizer, split = description["normalizer"] or {"type": None}, description["pre_tokenizer"] or {"type": None}
    match split["type"], normalizer["type"]:
        case "BertPreTokenizer", "BertNormalizer":
            return BERT_CHINESE if normalizer["handle_chinese_chars"] else BERT_WORDS
        case "ByteLevel", None | "Lowercase":
            return WORDS if split["use_regex"] and not split["add_prefix_space"] else None
        case "Sequence", "Sequence":
            return WORDS if _folds_space(normalizer["normalizers"]) and _marks_space(split["pretokenizers"]) else None
        case "Split", None | "Lowercase":
            return CHARACTERS if split["pattern"] == {"Regex": r"[\s\S]"} and split["behavior"] == "Isolated" else None
    return None


def _folds_space(steps: list[dict[str, Any]]) -> bool:
    """Whether runs of white space become one space, after steps that neither join nor move characters across it."""
    return steps[-1:] == [{"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}] and all(
        step["type"] in {"NFKC", "Lowercase"} for step in steps[:-1])


def _marks_space(steps: list[dict[str, Any]]) -> bool:
    """Whether spaces are marked and cut at, and what follows looks at single characters only."""
    return [step["type"] for step in steps[:1]] == ["Metaspace"] and steps[0]["split"] is True and all(
        step["type"] == "Split" and step["pattern"] == {"Regex": r"\p{P}"} for step in steps[1:])


class Numbers(dict[str, int]):
    """Piece → its number; a new piece is numbered when it is first looked up, and remembered as unseen."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: list[str] = []

    def __missing__(self, piece: str) -> int:
        self[piece] = number = len(self)
        self.unseen.append(piece)
        return number


@dataclass(frozen=True)
class Tables:
    """The pieces met so far, by number."""

    ids: Ints
    """The ids of all pieces, one piece after the other."""
    starts: Ints
    """For each of these ids the character of its piece where the token begins; empty unless positions are kept."""
    first: Places
    """Piece → where its ids begin; one more entry than pieces."""
    length: Places
    """Piece → characters."""


class Memo:
    """Looks whole groups of texts up at once; grows with unseen pieces, and begins anew when it has grown too large."""

    def __init__(self, library: tokenizers.Tokenizer, pattern: re.Pattern[str], *, positions: bool) -> None:
        self._library, self._pattern, self._positions = library, pattern, positions
        self._lock = Lock()  # a server's threads cut texts at the same time
        self._forget()

    def _forget(self) -> None:
        nothing = np.zeros(0, np.int32)
        self._numbers = Numbers()
        self._tables = Tables(nothing, nothing, np.zeros(1, np.int64), np.zeros(0, np.int64))

    def ids(self, texts: Sequence[str]) -> list[Ints]:
        """The ids of each text."""
        out: list[Ints] = []
        for group in groups(texts):
            with self._lock:
                pieces, ends = self._look_up(group)
                where, tokens = self._gather(pieces)
                out += np.split(self._tables.ids[where], tokens[ends[:-1]])
        return out

    def located(self, texts: Sequence[str], boundaries: Sequence[Places]) -> list[tuple[Ints, Places]]:
        """The ids of each text, and for each position in it the first token starting there or later."""
        out: list[tuple[Ints, Places]] = []
        for group in groups(texts):
            wanted = boundaries[len(out):len(out) + len(group)]
            pieces, ends = self._look_up(group)
            where, tokens = self._gather(pieces)
            characters = running(self._tables.length[pieces])
            starts = self._tables.starts[where] + np.repeat(characters[:-1], np.diff(tokens))
            begin, sizes = np.append(0, ends[:-1]), [len(at) for at in wanted]  # text → its first piece, its positions
            found = np.searchsorted(starts, np.concatenate(wanted) + np.repeat(characters[begin], sizes))
            found -= np.repeat(tokens[begin], sizes)
            out += zip(np.split(self._tables.ids[where], tokens[begin[1:]]), np.split(found, np.cumsum(sizes)[:-1]),
                       strict=True)
        return out

    def _look_up(self, texts: Sequence[str]) -> tuple[Places, Places]:
        """The numbers of all pieces, text after text, and how many there are up to the end of each text."""
        cut = [self._pattern.findall(text) for text in texts]
        ends = np.cumsum([len(pieces) for pieces in cut], dtype=np.int64)
        if len(self._numbers) > MOST_PIECES or self._tables.length.sum() > MOST_CHARACTERS:
            self._forget()
        pieces = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(cut)), np.int64, ends[-1])
        if self._numbers.unseen:
            self._learn()
        return pieces, ends

    def _gather(self, pieces: Places) -> tuple[Places, Places]:
        """Where in the tables each token of these pieces is, and how many tokens lie before each piece."""
        first = self._tables.first[pieces]
        counts = self._tables.first[pieces + 1] - first
        tokens = running(counts)
        return np.repeat(first - tokens[:-1], counts) + np.arange(tokens[-1]), tokens

    def _learn(self) -> None:
        """Encode the unseen pieces and lengthen the tables."""
        unseen, self._numbers.unseen = self._numbers.unseen, []
        encode = self._library.encode_batch if self._positions else self._library.encode_batch_fast
        found = encode(unseen, add_special_tokens=False)
        ids = [encoding.ids for encoding in found]
        counts = np.array([len(tokens) for tokens in ids], np.int64)
        length = np.array([len(piece) for piece in unseen], np.int64)
        starts = self._tables.starts
        if self._positions:
            moved = np.repeat(running(length)[:-1], counts).astype(np.int32)[:, None]  # all pieces as one text
            offsets = np.array([pair for encoding in found for pair in encoding.offsets], np.int32).reshape(-1, 2)
            starts = np.append(starts, (visible("".join(unseen), offsets + moved) - moved)[:, 0])
        self._tables = Tables(
            ids=np.append(self._tables.ids, np.fromiter(chain.from_iterable(ids), np.int32, counts.sum())),
            starts=starts,
            first=np.append(self._tables.first, self._tables.first[-1] + np.cumsum(counts)),
            length=np.append(self._tables.length, length))


def groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in order, as many at a time as stay under a bound of characters."""
    start = characters = 0
    for number, text in enumerate(texts):
        characters += len(text)
        if characters >= GROUP:
            yield texts[start:number + 1]
            start, characters = number + 1, 0
    if start < len(texts):
        yield texts[start:]


def visible(text: str, offsets: Sequence[tuple[int, int]] | NDArray[Any]) -> Ints:
    """Offsets without the white space a token carries in front; a token of nothing else keeps it."""
    out = np.array(offsets, np.int32).reshape(-1, 2)
    text = text[: int(out.max(initial=0))]  # of a text that is cut, no more than is covered
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    spaces = SPACES[np.minimum(points, len(SPACES) - 1)]
    ahead = np.where(spaces, len(text), np.arange(len(text), dtype=np.int32))
    ahead = np.minimum.accumulate(np.append(ahead, len(text))[::-1])[::-1]  # position → the next that is not a space
    moved = ahead[out[:, 0]].astype(np.int32)
    out[:, 0] = np.where(moved < out[:, 1], moved, out[:, 0])
    return out


def running(counts: Places) -> Places:
    """Running sums that begin with 0: what lies before each, and at the end before what follows."""
    return np.append(0, np.cumsum(counts))
