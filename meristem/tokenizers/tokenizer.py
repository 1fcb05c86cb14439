"""The tokenizer: text → token ids with offsets, ids → text; immutable, and can be pickled for worker processes."""

from __future__ import annotations

import hashlib
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

from meristem.tokenizers import tokenizer_files
from meristem.tokenizers.cached_encoding import Ints, PieceCache, Positions, batch_texts, cut_pattern, trim_offsets
from meristem.tokenizers.special_tokens import MASK, SENTINEL, find_special_ids, read_role_ids
from meristem.tokenizers.token_bytes import StreamDecoder, select_spelling
from meristem.tokenizers.token_text import display_labels, token_texts, whole_piece
from meristem.utils.durable_files import write_durably

Flags = NDArray[np.bool_]
TAIL = 8
"""Tokens behind which a stream is in the state that all of a text leaves it in."""


@dataclass(frozen=True)
class Encoding:
    """Token ids, and the offsets of each token in the original text."""

    ids: Ints
    offsets: Ints
    """[tokens, 2]: first character and last + 1, without leading white space."""
    left_out: int = 0
    """Tokens beyond the limit."""


@dataclass(frozen=True)
class PairTemplate:
    """Special tokens before, between and after two texts, and the segment ids of all five parts."""

    before: NDArray[np.int64]
    between: NDArray[np.int64]
    after: NDArray[np.int64]
    segments: tuple[list[int], ...]
    """Segment ids of: tokens before, first text (one id), tokens between, second text (one id), tokens after."""


class Tokenizer:
    """Encodes and decodes text; text never gives special ids, except the mask with `encode(…, special=True)`."""

    def __init__(
        self, json_text: str, source: str = "tokenizer.json", role_tokens: Mapping[str, str] | None = None
    ) -> None:
        self._source = source
        self.json_text, description = tokenizer_files.canonicalize(json_text, source, role_tokens or {})
        self._library = tokenizer_files.parse_tokenizer(self.json_text, source)
        self._library.encode_special_tokens = True  # "[SEP]" in a corpus is five characters, not a separator
        self._spelling = select_spelling(description, source)
        self._pattern = cut_pattern(description)
        vocabulary = self._library.get_vocab()
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        self._tokens = [""] * self.vocab_size  # an id that a loaded vocabulary skips has no text
        for token, token_id in vocabulary.items():
            self._tokens[token_id] = token
        added_special_ids = [token["id"] for token in description["added_tokens"] if token["special"]]
        special_ids = find_special_ids(vocabulary.get, read_role_ids(description["post_processor"]))
        self.pad, self.unknown, self.mask = special_ids.pad, special_ids.unknown, special_ids.mask
        self.start, self.end = special_ids.start, special_ids.end
        self._role_ids = {role: token_id for role, token_id in vars(special_ids).items() if token_id is not None}
        names = map(SENTINEL.format, count())
        self.sentinels = tuple(vocabulary[name] for name in takewhile(vocabulary.__contains__, names))
        """Ids of the sentinel tokens <extra_id_0>, <extra_id_1>, …"""
        self._special = frozenset([*added_special_ids, *self.sentinels, *self._role_ids.values()])

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.json_text,)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical tokenizer.json, by which data sets and checkpoints are checked."""
        return hashlib.sha256(self.json_text.encode()).hexdigest()

    @cached_property
    def special_mask(self) -> Flags:
        """[vocabulary]: whether each token is special."""
        mask = np.zeros(self.vocab_size, bool)
        mask[list(self._special)] = True
        return mask

    @cached_property
    def word_start_mask(self) -> Flags:
        """[vocabulary]: whether each token starts a word; tokens up to the next such token belong to the same word.

        WordPiece: tokens without `##`. Whole words: all. Others: tokens that begin with a space, punctuation or an
        ideograph; a letter, digit or combining mark continues the word. Special tokens are words of their own.
        """
        return np.array([self._spelling.starts_word(token) for token in self._tokens], bool) | self.special_mask

    @cached_property
    def single_template(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Special token ids that the tokenizer.json puts before and after a text; None if it adds none."""
        bare, with_template = (self._encode_template("a", special=special).ids for special in (False, True))
        if len(with_template) <= len(bare):
            return None
        ids, sizes = np.array(with_template, np.int64), range(len(with_template) - len(bare) + 1)
        start = next(start for start in sizes if with_template[start : start + len(bare)] == bare)
        return ids[:start], ids[start + len(bare) :]

    def _encode_template(self, text: str, pair: str | None = None, *, special: bool = True) -> tokenizers.Encoding:
        """One or two short texts encoded by the library, with the template of the tokenizer.json if `special`."""
        with tokenizer_files.tokenizer_errors(self._source):
            return self._library.encode(text, pair, add_special_tokens=special)

    @cached_property
    def template_segments(self) -> tuple[list[int], int, list[int]]:
        """Segment ids of the special tokens before a text, of the text, and of the special tokens after it."""
        type_ids = self._encode_template("a").type_ids
        before, after = (0, 0) if self.single_template is None else map(len, self.single_template)
        return type_ids[:before], type_ids[before] if len(type_ids) > before else 0, type_ids[len(type_ids) - after :]

    @cached_property
    def pair_template(self) -> PairTemplate | None:
        """Special tokens that the tokenizer.json puts around and between two texts; None if it adds none."""
        if self.single_template is None:
            return None
        first_text, second_text = ("a", "b") if self.token_to_id("a") != self.token_to_id("b") else ("a", "c")
        encoding = self._encode_template(first_text, second_text)
        first_ids, second_ids = (self._encode_template(text, special=False).ids for text in (first_text, second_text))
        ids, type_ids = np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64)
        sides = np.array([-1 if side is None else side for side in encoding.sequence_ids])
        first_start, second_start = int(np.argmax(sides == 0)), int(np.argmax(sides == 1))
        before = slice(0, first_start)
        between = slice(first_start + len(first_ids), second_start)
        after = slice(second_start + len(second_ids), len(ids))
        parts = (before, slice(first_start, first_start + 1), between, slice(second_start, second_start + 1), after)
        segments = tuple(type_ids[part].tolist() for part in parts)
        return PairTemplate(before=ids[before], between=ids[between], after=ids[after], segments=segments)

    def with_special_tokens(self, names: Sequence[str], template: Mapping[str, str]) -> Tokenizer:
        """A tokenizer with additional special tokens and a template of them: `{"single": "<a> $A", "pair": …}`."""
        library = tokenizer_files.parse_tokenizer(self.json_text, "tokenizer.json")
        library.add_special_tokens(list(names))
        special_tokens = [(name, library.token_to_id(name)) for name in names]
        library.post_processor = TemplateProcessing(**template, special_tokens=special_tokens)
        role_tokens = {role: self._tokens[token_id] for role, token_id in self._role_ids.items()}
        return Tokenizer(library.to_str(), role_tokens=role_tokens)

    def encode(self, text: str, *, max_tokens: int | None = None, special: bool = False) -> Encoding:
        """Ids and offsets of a text; with `special`, [MASK] in the text is the mask token, whatever its own name."""
        if special and self.mask is not None:
            return self._encode_masks(text, max_tokens)
        with tokenizer_files.tokenizer_errors(self._source):
            # a batch frees the GIL
            (encoding,) = self._library.encode_batch([replace_surrogates(text)], add_special_tokens=False)
        left_out = _cut(encoding, max_tokens)
        return Encoding(np.array(encoding.ids, np.int32), trim_offsets(text, encoding.offsets), left_out)

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        with tokenizer_files.tokenizer_errors(self._source):
            (encoding,) = self._library.encode_batch_fast([replace_surrogates(text)], add_special_tokens=False)
        return len(encoding)

    def encode_batch(self, texts: Iterable[str]) -> list[Encoding]:
        """Ids and offsets of many texts."""
        texts = list(texts)
        with tokenizer_files.tokenizer_errors(self._source):
            encodings = (
                encoding
                for batch in batch_texts(texts)
                for encoding in self._library.encode_batch(
                    list(map(replace_surrogates, batch)), add_special_tokens=False
                )
            )
            return [
                Encoding(np.array(encoding.ids, np.int32), trim_offsets(text, encoding.offsets))
                for text, encoding in zip(texts, encodings, strict=True)
            ]

    def encode_ids(self, texts: Sequence[str]) -> list[Ints]:
        """Ids of many texts without offsets; the fastest way, by cached pieces where possible."""
        texts = [replace_surrogates(text) for text in texts]
        with tokenizer_files.tokenizer_errors(self._source):
            return self._batched_ids(texts) if self._pattern is None else self._piece_cache.encode(texts)

    def ids_each(self, texts: Iterable[str]) -> list[Ints]:
        """Ids of many texts; unlike `encode_ids` it keeps no memo, so that several threads may call it."""
        with tokenizer_files.tokenizer_errors(self._source):
            return self._batched_ids([replace_surrogates(text) for text in texts])

    def _batched_ids(self, texts: Sequence[str]) -> list[Ints]:
        return [
            np.array(encoding.ids, np.int32)
            for group in batch_texts(texts)
            for encoding in self._library.encode_batch_fast(group, add_special_tokens=False)
        ]

    def encode_with_boundaries(
        self, texts: Sequence[str], boundaries: Sequence[Positions]
    ) -> list[tuple[Ints, Positions]]:
        """Ids of many texts, and for each (increasing) character position the first token starting there or later."""
        texts = [replace_surrogates(text) for text in texts]
        if self._pattern is not None:
            with tokenizer_files.tokenizer_errors(self._source):
                return self._offset_cache.encode_with_boundaries(texts, boundaries)
        return [
            (encoding.ids, np.searchsorted(encoding.offsets[:, 0], positions).astype(np.int64))
            for encoding, positions in zip(self.encode_batch(texts), boundaries, strict=True)
        ]

    @cached_property
    def _piece_cache(self) -> PieceCache:
        assert self._pattern is not None
        return PieceCache(self._library, self._pattern, positions=False)

    @cached_property
    def _offset_cache(self) -> PieceCache:
        assert self._pattern is not None
        return PieceCache(self._library, self._pattern, positions=True)

    def mark_masks(self, text: str) -> str:
        """The text with each [MASK] replaced by the tokenizer's own mask token."""
        return text if self.mask is None else text.replace(MASK, self._tokens[self.mask])

    def _encode_masks(self, text: str, max_tokens: int | None) -> Encoding:
        assert self.mask is not None
        mask_name = self._tokens[self.mask]
        with tokenizer_files.tokenizer_errors(self._source):
            (encoding,) = self._mask_tokenizer.encode_batch(
                [replace_surrogates(self.mark_masks(text))], add_special_tokens=False
            )
        left_out = _cut(encoding, max_tokens)
        origin: list[NDArray[Any]] = []  # position in the text with mask tokens → original position
        last = 0
        for match in re.finditer(re.escape(MASK), text):
            origin += [np.arange(last, match.start()), np.full(len(mask_name), match.start())]
            last = match.end()
        origin.append(np.arange(last, len(text) + 1))
        offsets = np.concatenate(origin)[np.array(encoding.offsets, np.int32).reshape(-1, 2)]
        return Encoding(np.array(encoding.ids, np.int32), trim_offsets(text, offsets), left_out)

    @cached_property
    def _mask_tokenizer(self) -> Any:
        """The same tokenizer, except that it recognises the mask token in text (and no other special token)."""
        assert self.mask is not None
        return tokenizer_files.with_single_special_token(
            self.json_text, self.mask, self._tokens[self.mask], lstrip=self._spelling.carries_space
        )

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ids: exact for bpe; for wordpiece with BERT's spacing and no spaces between ideographs."""
        stream = self.stream_decoder(skip_special)
        return "".join([stream.push(int(token)) for token in ids]) + stream.finish()

    def stream_decoder(self, skip_special: bool = True, *, after: Sequence[int] = ()) -> StreamDecoder:
        """A decoder for one token at a time; what it gives, put together, is `decode` of all.

        With `after` it stands behind these tokens: what follows depends on the last of them, and on the bytes of a
        character that they leave unfinished, which are three at the most.
        """
        skip = self._special if skip_special else frozenset[int]()
        stream = StreamDecoder(self._spelling, self._tokens, skip)
        spoken = (token for token in reversed(after) if token not in skip and token < self.vocab_size)
        for token in reversed(list(islice(spoken, TAIL))):
            stream.push(token)
        return stream

    def id_to_token(self, token_id: int) -> str:
        """The token of an id, as in the vocabulary."""
        return self._tokens[token_id]

    def display_labels(self, ids: Iterable[int]) -> list[str]:
        """Human-readable labels: visible spaces, bytes as characters, names of special tokens unchanged."""
        id_list = [int(token_id) for token_id in ids]
        special = [token_id in self._special for token_id in id_list]
        return display_labels([self._tokens[token_id] for token_id in id_list], special, self._spelling)

    def token_texts(self, ids: Iterable[int]) -> list[str]:
        """The text of each token of a text (` the`, not `Ġthe`); `##` and names of special tokens stay as they are."""
        table, out, cut = self._whole_pieces, list[str](), list[int]()
        for token_id in ids:
            piece = table[token_id]
            if piece is None:
                cut.append(token_id)
                continue
            if cut:
                out += self._cut_pieces(cut)
                cut = []
            out.append(piece)
        return out + self._cut_pieces(cut)

    def _cut_pieces(self, ids: Sequence[int]) -> list[str]:
        """The texts of consecutive tokens that share characters."""
        return token_texts([self._tokens[number] for number in ids], [False] * len(ids), self._spelling)

    @cached_property
    def _whole_pieces(self) -> list[str | None]:
        """Id → its text; none where the token begins or ends inside a character, so that its neighbours matter."""
        named = enumerate(self._tokens)
        return [whole_piece(name, self._spelling, special=number in self._special) for number, name in named]

    def token_text(self, token_id: int) -> str:
        """The text of one token by itself; bytes that are no whole character are written out: `bytes:\\xe4\\xb8`."""
        piece = self._whole_pieces[token_id]
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.token_bytes(token_id)) if piece is None else piece

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token."""
        name = self._tokens[token_id]
        if token_id in self._special or not self._spelling.carries_space:
            return self.token_texts([token_id])[0].encode("utf-8", "replace")
        return self._spelling.to_bytes(name, previous="")

    def token_to_id(self, token: str) -> int | None:
        """The id of a token; None if it is not in the vocabulary."""
        return self._library.token_to_id(token)

    def save(self, path: Path) -> None:
        """Write tokenizer.json to this path, or into this folder; atomic."""
        path = path / "tokenizer.json" if path.is_dir() else path
        write_durably(path, self.json_text)

    @classmethod
    def load(cls, path: Path | str, *, lowercase: bool | None = None) -> Tokenizer:
        """From tokenizer.json, vocab.txt, vocab.json with merges.txt, or a folder with one of these."""
        return cls(*tokenizer_files.read_tokenizer_file(Path(path), lowercase))


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates, which cannot be encoded, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


def _cut(encoding: tokenizers.Encoding, limit: int | None) -> int:
    """Cut to a limit before ids and offsets become Python's → how many tokens went: lists of them hold the GIL."""
    if limit is None or len(encoding) <= limit:
        return 0
    before = len(encoding)
    encoding.truncate(limit)
    return before - limit
