"""Texts as a backbone reads them: framed by the tokenizer, spelled for one that reads letters, on both sides of a
decoder. What a task predicts is looked up at the positions this file names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from meristem.batch import Array
from meristem.errors import MeristemError
from meristem.store.encode import separator_of
from meristem.store.letters import spelled
from meristem.tokenizers.tokenizer import Encoding, PairFrame, Tokenizer

Way = Literal["bidirectional", "causal", "both_directions", "encoder_decoder"]
MARKS = ("<|start|>", "<|delimiter|>", "<|extract|>")
"""What a causal model reads around a task's texts (Radford et al. 2018); new tokens, behind the vocabulary."""


def marked(tokenizer: Tokenizer) -> Tokenizer:
    """A causal model's tokenizer with the three marks of GPT-1's tasks, which frame every text from now on."""
    start, delimiter, extract = MARKS
    return tokenizer.extended(
        MARKS, {"single": f"{start} $A {extract}", "pair": f"{start} $A {delimiter} $B:1 {extract}:1"}
    )


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text ready to be framed: ids, where each token stands, and the text itself for its letters."""

    ids: Array
    offsets: Array
    text: str

    def cut(self, start: int, stop: int) -> Text:
        """Some of its tokens."""
        return Text(ids=self.ids[start:stop], offsets=self.offsets[start:stop], text=self.text)

    @classmethod
    def of(cls, text: str, found: Encoding) -> Text:
        """From what a tokenizer gave."""
        return cls(ids=found.ids.astype(np.int64), offsets=found.offsets, text=text)


@dataclass(frozen=True, kw_only=True)
class Framed:
    """A row's inputs, and where its texts begin in it."""

    inputs: dict[str, Array]
    starts: tuple[int, ...]
    """The position of each text's first token."""
    summary: int
    """The position that stands for the whole: the start token in front (BERT) or behind (XLNet), or the last one."""


class Reader:
    """One or two texts → what the backbone's forward takes."""

    def __init__(
        self, tokenizer: Tokenizer, way: Way, length: int, begin: Sequence[int] = (), *, framed: bool = True
    ) -> None:
        self.tokenizer, self.way, self.length = tokenizer, way, length
        self.begin = tuple(begin[:1]) or (tokenizer.start if tokenizer.start is not None else separator_of(tokenizer),)
        """What a decoder that reads begins after: the text then follows, moved by this one token."""
        self.single: tuple[Array, Array] = tokenizer.frame or (_frame(tokenizer) if framed else _nothing())
        self.pair = tokenizer.pair_frame or _pair(*self.single, between=[separator_of(tokenizer)] if framed else [])

    def encode(self, texts: Sequence[str], *, placed: bool = True) -> list[Text]:
        """All texts at once, without a frame; not `placed`, where tokens stand is only found if letters are read."""
        if not placed and self.way != "both_directions":
            nowhere = np.zeros((0, 2), np.int64)
            found = zip(texts, self.tokenizer.ids_many(texts), strict=True)
            return [Text(ids=ids.astype(np.int64), offsets=nowhere, text=text) for text, ids in found]
        return [Text.of(text, found) for text, found in zip(texts, self.tokenizer.encode_many(texts), strict=True)]

    def room(self, texts: int = 1) -> int:
        """Tokens of text that fit beside the frame."""
        pair = self.pair
        taken = sum(map(len, self.single if texts == 1 else (pair.before, pair.between, pair.after)))
        if self.length <= taken:
            raise MeristemError(f"task.length: {self.length} leaves no room for text beside {taken} special tokens")
        return self.length - taken

    def frame(self, first: Text, second: Text | None = None) -> Framed:
        """The row of one text or of two; they must fit."""
        pair = self.pair
        parts = [(self.single[0], None), (first.ids, first), (self.single[1], None)]
        if second is not None:
            parts = [
                (pair.before, None),
                (first.ids, first),
                (pair.between, None),
                (second.ids, second),
                (pair.after, None),
            ]
        if not any(len(ids) for ids, _ in parts):  # nothing of the text is left, and nothing stands around it
            parts[-1] = (np.array([separator_of(self.tokenizer)], np.int64), None)
        tokens = np.concatenate([ids for ids, _ in parts]).astype(np.int64)
        ends = np.cumsum([0, *(len(ids) for ids, _ in parts)])
        starts = tuple(int(ends[number]) for number, (_, text) in enumerate(parts) if text is not None)
        inputs: dict[str, Array] = {"tokens": tokens}
        match self.way:
            case "bidirectional":
                kinds = self.tokenizer.frame_segments if second is None else pair.segments
                inputs["segments"] = np.array(_segments(kinds, [len(ids) for ids, _ in parts]), np.int64)
            case "encoder_decoder":
                inputs = {
                    "source": tokens,
                    "tokens": np.concatenate([self.begin, tokens])[: len(tokens)].astype(np.int64),
                }
            case "both_directions":
                words = [w for ids, text in parts for w in (_written(text) if text is not None else [b""] * len(ids))]
                inputs["characters"] = spelled(tokens, words, self.tokenizer)
        return Framed(inputs=inputs, starts=starts, summary=self._summary(tokens))

    def _summary(self, tokens: Array) -> int:
        """Where the start token stands, for encoders; the last position for those that read one way."""
        if self.way == "bidirectional" and self.tokenizer.start is not None:
            found = np.flatnonzero(tokens == self.tokenizer.start)
            return int(found[-1] if len(found) and found[0] else 0)
        return len(tokens) - 1


def _frame(tokenizer: Tokenizer) -> tuple[Array, Array]:
    """Start and end, where a tokenizer has them and no frame of its own."""
    start, end = ([] if mark is None else [mark] for mark in (tokenizer.start, tokenizer.end))
    return np.array(start, np.int64), np.array(end, np.int64)


def _nothing() -> tuple[Array, Array]:
    return np.array([], np.int64), np.array([], np.int64)


def _pair(before: Array, after: Array, *, between: list[int]) -> PairFrame:
    """[CLS] a [SEP] b [SEP], the second text and what follows it being the other segment."""
    return PairFrame(before, np.array(between, np.int64), after, ([0] * len(before), [0], [0], [1], [1] * len(after)))


def _segments(kinds: Sequence[Sequence[int] | int], sizes: Sequence[int]) -> list[int]:
    """One kind for each token: those of a frame are told one by one, a text has one for all of it."""
    out: list[int] = []
    for told, size in zip(kinds, sizes, strict=True):
        several = [told] if isinstance(told, int) else list(told)
        out += several if len(several) == size else (several or [0])[:1] * size
    return out


def _written(text: Text) -> list[bytes]:
    return [text.text[a:b].encode("utf-8", "surrogatepass") for a, b in text.offsets.tolist()]
