"""Encodes a batch of texts into arrays (ids, sentence starts, sizes) for a shard; runs in the worker processes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.data.text_units import find_sentence_starts
from meristem.dataset.shard import dtype_for
from meristem.inputs.template import separator_id
from meristem.tokenizers.tokenizer import Tokenizer

FINGERPRINT_BYTES = 8  # bytes


@dataclass(frozen=True, kw_only=True)
class TokenSpellings:
    """The spelling of each token, as indices into a table of spellings."""

    ids: NDArray[np.int64]
    table: Sequence[bytes]


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """Several encoded documents, concatenated."""

    tokens: NDArray[Any]
    lengths: NDArray[np.int64]
    """Tokens per document, separator included; 0 for a text without a single token."""
    sentence_starts: NDArray[np.int64]
    """Positions in `tokens` where sentences begin."""
    byte_sizes: NDArray[np.int64]
    """UTF-8 bytes of each document that has tokens."""
    fingerprints: bytes
    """A short digest of each document, concatenated."""
    unknown_counts: NDArray[np.int64]
    """[documents, 2]: unknown tokens per document, and the UTF-8 bytes of text they cover."""
    spellings: TokenSpellings | None = None
    target_starts: NDArray[np.int64] | None = None
    """Positions in `tokens` where the target of each pair begins."""
    images: NDArray[np.uint8] | None = None
    """[documents, side, side, 3], one for each document that has tokens."""

    def select(self, first: int, last: int) -> EncodedBatch:
        """The documents from `first` up to `last`."""
        start, stop = int(self.lengths[:first].sum()), int(self.lengths[:last].sum())
        low, high = np.searchsorted(self.sentence_starts, (start, stop))
        spellings = self.spellings and TokenSpellings(ids=self.spellings.ids[start:stop], table=self.spellings.table)
        nonempty = slice(np.count_nonzero(self.lengths[:first]), np.count_nonzero(self.lengths[:last]))
        return EncodedBatch(
            tokens=self.tokens[start:stop],
            lengths=self.lengths[first:last],
            sentence_starts=self.sentence_starts[low:high] - start,
            byte_sizes=self.byte_sizes[first:last],
            unknown_counts=self.unknown_counts[first:last],
            fingerprints=self.fingerprints[first * FINGERPRINT_BYTES : last * FINGERPRINT_BYTES],
            spellings=spellings,
            target_starts=None if self.target_starts is None else self.target_starts[nonempty] - start,
            images=None if self.images is None else self.images[nonempty],
        )


def fingerprint(data: bytes) -> bytes:
    """A short digest of one document's text."""
    return hashlib.sha256(data).digest()[:FINGERPRINT_BYTES]


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, *, keep_words: bool = False) -> EncodedBatch:
    """Tokens, sentence starts and sizes of a batch of documents."""
    starts = [find_sentence_starts(text) for text in texts]
    if keep_words:
        pairs, spellings = _encode_with_spellings(texts, starts, tokenizer)
    else:
        pairs, spellings = tokenizer.encode_with_boundaries(list(texts), starts), None
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    counts = np.array([len(ids) for ids, _ in pairs], dtype=np.int64)
    lengths = np.where(counts > 0, counts + 1, 0)
    token_ids = [ids for ids, _ in pairs]
    return EncodedBatch(
        tokens=_join_documents(token_ids, counts, separator_id(tokenizer), dtype_for(tokenizer.vocab_size)),
        lengths=lengths,
        sentence_starts=_join_sentence_starts([begins for _, begins in pairs], counts, lengths),
        byte_sizes=np.array([len(item) for item in encoded], dtype=np.int64) * (counts > 0),
        fingerprints=b"".join(map(fingerprint, encoded)),
        spellings=spellings,
        unknown_counts=count_unknown_per_text(texts, token_ids, tokenizer),
    )


def count_unknown_per_text(
    texts: Sequence[str], ids: Sequence[NDArray[Any]], tokenizer: Tokenizer
) -> NDArray[np.int64]:
    """[texts, 2]: how many tokens of each text are unknown, and the UTF-8 bytes of text they cover."""
    counts = np.zeros((len(texts), 2), np.int64)
    if tokenizer.unknown is None:
        return counts
    counts[:, 0] = [np.count_nonzero(text_ids == tokenizer.unknown) for text_ids in ids]
    affected = np.flatnonzero(counts[:, 0]).tolist()
    if not affected:  # the empty tokenizer used for cost estimates cannot encode texts
        return counts
    for index, encoding in zip(affected, tokenizer.encode_batch([texts[index] for index in affected]), strict=True):
        spans = encoding.offsets[encoding.ids == tokenizer.unknown].tolist()
        counts[index, 1] = sum(len(texts[index][start:stop].encode("utf-8", "surrogatepass")) for start, stop in spans)
    return counts


def _join_documents(
    token_ids: Sequence[NDArray[Any]], counts: NDArray[np.int64], separator: int, dtype: str
) -> NDArray[Any]:
    """The documents concatenated, each followed by a separator."""
    nonempty = counts[counts > 0]
    ids = np.concatenate([*token_ids, np.zeros(0, np.int32)]).astype(dtype)
    return np.insert(ids, np.cumsum(nonempty), np.array(separator, dtype))


def _join_sentence_starts(
    starts: Sequence[NDArray[Any]], counts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Sentence starts in the concatenated tokens: each once, and none past the end of its text's tokens."""
    start_counts = [len(text_starts) for text_starts in starts]
    offsets = np.concatenate([*starts, np.zeros(0, np.int64)]).astype(np.int64)
    is_inside = offsets < np.repeat(counts, start_counts)
    positions = (offsets + np.repeat(np.cumsum(lengths) - lengths, start_counts))[is_inside]
    return positions[np.diff(positions, prepend=-1) > 0]


def _encode_with_spellings(
    texts: Sequence[str], starts: Sequence[NDArray[np.int64]], tokenizer: Tokenizer
) -> tuple[list[tuple[NDArray[Any], NDArray[np.int64]]], TokenSpellings]:
    """Ids, sentence starts as token positions, and each token's bytes in the text (from its offsets)."""
    table: dict[str, int] = {"": 0}
    spelling_ids: list[int] = []
    pairs = []
    for text, text_starts, encoding in zip(texts, starts, tokenizer.encode_batch(list(texts)), strict=True):
        pairs.append((encoding.ids, np.searchsorted(encoding.offsets[:, 0], text_starts)))
        spelling_ids += [table.setdefault(text[start:stop], len(table)) for start, stop in encoding.offsets.tolist()]
        spelling_ids += [0] if len(encoding.ids) else []
    spellings = [word.encode("utf-8", "surrogatepass") for word in table]
    return pairs, TokenSpellings(ids=np.array(spelling_ids, dtype=np.int64), table=spellings)
