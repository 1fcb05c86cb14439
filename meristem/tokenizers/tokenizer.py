"""The tokenizer everything above uses: text → ids with offsets, ids → text; read-only, and it travels to workers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers.processors import TemplateProcessing

from meristem.system_errors import naming_file
from meristem.tokenizers import reading
from meristem.tokenizers.labels import labels, pieces, whole_piece
from meristem.tokenizers.pieces import Ints, Memo, Places, cuts, groups, visible
from meristem.tokenizers.roles import MASK, SENTINEL, roles, told
from meristem.tokenizers.spelling import Stream, spelling_of

Flags = NDArray[np.bool_]
TAIL = 8
"""Tokens behind which a stream is in the state that all of a text leaves it in."""


@dataclass(frozen=True)
class Encoding:
    """Ids, and where each token stands in the original text."""

    ids: Ints
    offsets: Ints
    """[tokens, 2]: first character and the one after the last, leading white space left out."""
    left_out: int = 0
    """Tokens beyond the limit."""


@dataclass(frozen=True)
class PairFrame:
    """What stands before, between and after two texts, and the segments of all five parts."""

    before: NDArray[np.int64]
    between: NDArray[np.int64]
    after: NDArray[np.int64]
    segments: tuple[list[int], ...]
    """Of what stands before, the first text (one number), between, the second text (one number), after."""


class Tokenizer:
    """A vocabulary and how text is cut by it; texts never give special ids unless `special` asks for the mask."""

    def __init__(self, text: str, place: str = "tokenizer.json", named: Mapping[str, str] | None = None) -> None:
        self._place = place
        self.text, description = reading.canonical(text, place, named or {})
        self._library = reading.library(self.text, place)
        self._library.encode_special_tokens = True  # "[SEP]" written in a corpus is five characters, not a separator
        self._spelling = spelling_of(description, place)
        self._pattern = cuts(description)
        vocabulary = self._library.get_vocab()
        self.size = max(vocabulary.values(), default=-1) + 1
        self._tokens = [""] * self.size  # an id that a loaded vocabulary skips spells nothing
        for token, number in vocabulary.items():
            self._tokens[number] = token
        special = [token["id"] for token in description["added_tokens"] if token["special"]]
        found = roles(vocabulary.get, told(description["post_processor"]))
        self.pad, self.unknown, self.start, self.end, self.mask = (
            found.pad, found.unknown, found.start, found.end, found.mask)
        self._playing = {role: number for role, number in vars(found).items() if number is not None}
        names = map(SENTINEL.format, count())
        self.sentinels = tuple(vocabulary[name] for name in takewhile(vocabulary.__contains__, names))
        """<extra_id_0>, <extra_id_1> and so on, as many as there are."""
        self._special = frozenset([*special, *self.sentinels, *self._playing.values()])

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.text,)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical tokenizer.json: what a store and a checkpoint are checked against."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def specials(self) -> Flags:
        """Id → whether the token is special."""
        out = np.zeros(self.size, bool)
        out[list(self._special)] = True
        return out

    @cached_property
    def starts_word(self) -> Flags:
        """Id → whether the token begins a word; what follows up to the next such token belongs to the same word.

        WordPiece: not `##`. Whole words: always. The others: it begins with a space, with punctuation or with an
        ideograph; a letter, digit or combining mark goes on with the word. Special tokens stand alone.
        """
        return np.array([self._spelling.begins(token) for token in self._tokens], bool) | self.specials

    @cached_property
    def frame(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """What the tokenizer.json itself puts before and after a text; none where it puts nothing."""
        bare, framed = (self._encode_frame("a", special=added).ids for added in (False, True))
        if len(framed) <= len(bare):
            return None
        ids, sizes = np.array(framed, np.int64), range(len(framed) - len(bare) + 1)
        at = next(at for at in sizes if framed[at : at + len(bare)] == bare)
        return ids[:at], ids[at + len(bare) :]

    def _encode_frame(self, text: str, pair: str | None = None, *, special: bool = True) -> tokenizers.Encoding:
        """A short text, or two, as the library encodes them with what the tokenizer.json puts around."""
        with reading.cutting(self._place):
            return self._library.encode(text, pair, add_special_tokens=special)

    @cached_property
    def frame_segments(self) -> tuple[list[int], int, list[int]]:
        """The segments of what the tokenizer.json puts before a text, of the text, and of what it puts after."""
        found, before = self._encode_frame("a"), len(self.frame[0]) if self.frame is not None else 0
        kinds, after = found.type_ids, len(self.frame[1]) if self.frame is not None else 0
        return kinds[:before], kinds[before] if len(kinds) > before else 0, kinds[len(kinds) - after :]

    @cached_property
    def pair_frame(self) -> PairFrame | None:
        """What the tokenizer.json itself puts around and between two texts; none where it puts nothing."""
        if self.frame is None:
            return None
        one, other = ("a", "b") if self.id("a") != self.id("b") else ("a", "c")
        found = self._encode_frame(one, other)
        first, second = (self._encode_frame(text, special=False).ids for text in (one, other))
        ids, kinds = np.array(found.ids, np.int64), np.array(found.type_ids, np.int64)
        sides = np.array([-1 if side is None else side for side in found.sequence_ids])
        at, then = int(np.argmax(sides == 0)), int(np.argmax(sides == 1))
        ends = (at, at + len(first), then, then + len(second))
        bounds = ((0, at), (at, at + 1), (ends[1], then), (then, then + 1), (ends[3], len(ids)))
        return PairFrame(
            before=ids[:at],
            between=ids[ends[1] : then],
            after=ids[ends[3] :],
            segments=tuple(kinds[a:b].tolist() for a, b in bounds),
        )

    def extended(self, names: Sequence[str], template: Mapping[str, str]) -> Tokenizer:
        """The same with more special tokens behind its own, and a frame of them: `{"single": "<a> $A", "pair": …}`."""
        library = reading.library(self.text, "tokenizer.json")
        library.add_special_tokens(list(names))
        known = [(name, library.token_to_id(name)) for name in names]
        library.post_processor = TemplateProcessing(**template, special_tokens=known)
        return Tokenizer(library.to_str(), named={role: self._tokens[number] for role, number in self._playing.items()})

    def encode(self, text: str, *, limit: int | None = None, special: bool = False) -> Encoding:
        """Ids and offsets of a text; with `special` a written [MASK] is the mask token, whatever its own name."""
        if special and self.mask is not None:
            return self._encode_masks(text, limit)
        with reading.cutting(self._place):
            (found,) = self._library.encode_batch([sound(text)], add_special_tokens=False)  # which frees the GIL
        left_out = _cut(found, limit)
        return Encoding(np.array(found.ids, np.int32), visible(text, found.offsets), left_out)

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        with reading.cutting(self._place):
            (found,) = self._library.encode_batch_fast([sound(text)], add_special_tokens=False)
        return len(found)

    def encode_many(self, texts: Iterable[str]) -> list[Encoding]:
        """Ids and offsets of many texts."""
        texts = list(texts)
        with reading.cutting(self._place):
            return [Encoding(np.array(found.ids, np.int32), visible(text, found.offsets))
                    for group in groups(texts)
                    for text, found in zip(group, self._library.encode_batch(
                        [sound(text) for text in group], add_special_tokens=False), strict=True)]

    def ids_many(self, texts: Sequence[str]) -> list[Ints]:
        """Ids of many texts, the fastest way there is."""
        texts = [sound(text) for text in texts]
        with reading.cutting(self._place):
            return self._batched_ids(texts) if self._pattern is None else self._memo.ids(texts)

    def ids_each(self, texts: Iterable[str]) -> list[Ints]:
        """Ids of many texts; unlike `ids_many` it keeps no memo, so that several threads may call it."""
        with reading.cutting(self._place):
            return self._batched_ids([sound(text) for text in texts])

    def _batched_ids(self, texts: Sequence[str]) -> list[Ints]:
        return [np.array(found.ids, np.int32) for group in groups(texts)
                for found in self._library.encode_batch_fast(group, add_special_tokens=False)]

    def ids_with_boundaries(self, texts: Sequence[str], boundaries: Sequence[Places]) -> list[tuple[Ints, Places]]:
        """Ids of many texts, and for each increasing character position the first token starting there or later."""
        texts = [sound(text) for text in texts]
        if self._pattern is not None:
            with reading.cutting(self._place):
                return self._placed.located(texts, boundaries)
        return [(found.ids, np.searchsorted(found.offsets[:, 0], at).astype(np.int64))
                for found, at in zip(self.encode_many(texts), boundaries, strict=True)]

    @cached_property
    def _memo(self) -> Memo:
        assert self._pattern is not None
        return Memo(self._library, self._pattern, positions=False)

    @cached_property
    def _placed(self) -> Memo:
        assert self._pattern is not None
        return Memo(self._library, self._pattern, positions=True)

    def mark_masks(self, text: str) -> str:
        """The text with each [MASK] under the tokenizer's own name."""
        return text if self.mask is None else text.replace(MASK, self._tokens[self.mask])

    def _encode_masks(self, text: str, limit: int | None) -> Encoding:
        assert self.mask is not None
        own = self._tokens[self.mask]
        with reading.cutting(self._place):
            (found,) = self._masking.encode_batch([sound(self.mark_masks(text))], add_special_tokens=False)
        left_out = _cut(found, limit)
        origin: list[NDArray[Any]] = []  # marked position → original position
        last = 0
        for match in re.finditer(re.escape(MASK), text):
            origin += [np.arange(last, match.start()), np.full(len(own), match.start())]
            last = match.end()
        origin.append(np.arange(last, len(text) + 1))
        offsets = np.concatenate(origin)[np.array(found.offsets, np.int32).reshape(-1, 2)]
        return Encoding(np.array(found.ids, np.int32), visible(text, offsets), left_out)

    @cached_property
    def _masking(self) -> Any:
        """The same tokenizer, but one that knows the mask token in a text, and no other special token."""
        assert self.mask is not None
        return reading.only_special(self.text, self.mask, self._tokens[self.mask], lstrip=self._spelling.carries_space)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ids: exact for bpe, with spaces as BERT sets them for wordpiece, none between ideographs."""
        stream = self.stream(skip_special)
        return "".join([stream.push(int(token)) for token in ids]) + stream.finish()

    def stream(self, skip_special: bool = True, *, after: Sequence[int] = ()) -> Stream:
        """A decoder for one token at a time; what it gives, put together, is `decode` of all.

        With `after` it stands behind these tokens: what follows depends on the last of them, and on the bytes of a
        character that they leave unfinished, which are three at the most.
        """
        skip = self._special if skip_special else frozenset[int]()
        stream = Stream(self._spelling, self._tokens, skip)
        spoken = (token for token in reversed(after) if token not in skip and token < self.size)
        for token in reversed(list(islice(spoken, TAIL))):
            stream.push(token)
        return stream

    def token(self, number: int) -> str:
        """The token's name."""
        return self._tokens[number]

    def labels(self, ids: Iterable[int]) -> list[str]:
        """Tokens as a person reads them: spaces shown, bytes as their characters, special names as they are."""
        numbers = [int(number) for number in ids]
        special = [number in self._special for number in numbers]
        return labels([self._tokens[number] for number in numbers], special, self._spelling)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each token of a text (` the`, not `Ġthe`); `##` and names of special tokens stay as they are."""
        table, out, cut = self._whole_pieces, list[str](), list[int]()
        for number in ids:
            piece = table[number]
            if piece is None:
                cut.append(number)
                continue
            if cut:
                out += self._cut_pieces(cut)
                cut = []
            out.append(piece)
        return out + self._cut_pieces(cut)

    def _cut_pieces(self, ids: Sequence[int]) -> list[str]:
        """The texts of consecutive tokens that share characters."""
        return pieces([self._tokens[number] for number in ids], [False] * len(ids), self._spelling)

    @cached_property
    def _whole_pieces(self) -> list[str | None]:
        """Id → its text; none where the token begins or ends inside a character, so that its neighbours matter."""
        named = enumerate(self._tokens)
        return [whole_piece(name, self._spelling, special=number in self._special) for number, name in named]

    def piece(self, number: int) -> str:
        """The text of one token by itself; bytes that are no whole character are written out: `bytes:\\xe4\\xb8`."""
        piece = self._whole_pieces[number]
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.piece_bytes(number)) if piece is None else piece

    def piece_bytes(self, number: int) -> bytes:
        """The bytes a token stands for."""
        name = self._tokens[number]
        if number in self._special or not self._spelling.carries_space:
            return self.pieces([number])[0].encode("utf-8", "replace")
        return self._spelling.spell(name, before="")

    def id(self, token: str) -> int | None:
        """The id of a token's name."""
        return self._library.token_to_id(token)

    def save(self, path: Path) -> None:
        """Write tokenizer.json, or into a folder under that name."""
        path = path / "tokenizer.json" if path.is_dir() else path
        unfinished = path.with_name(f"{path.name}.tmp")
        with naming_file(path), unfinished.open("w", encoding="utf-8") as file:
            file.write(self.text)
            file.flush()
            os.fsync(file.fileno())  # renamed before it is on disk, a power cut leaves it empty
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path | str, *, lowercase: bool | None = None) -> Tokenizer:
        """From tokenizer.json, vocab.txt, vocab.json beside merges.txt, or a folder that holds one of these."""
        return cls(*reading.read(Path(path), lowercase))


def sound(text: str) -> str:
    """The text with U+FFFD for half characters (lone surrogates), which no encoding can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


def _cut(found: tokenizers.Encoding, limit: int | None) -> int:
    """Cut to a limit before ids and offsets become Python's → how many tokens went: lists of them hold the GIL."""
    if limit is None or len(found) <= limit:
        return 0
    before = len(found)
    found.truncate(limit)
    return before - limit
