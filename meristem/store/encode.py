"""A batch of texts becomes arrays ready to be appended to a shard: what the worker processes do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.store.sentences import boundaries
from meristem.store.shards import dtype_for

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer

FINGERPRINT = 8  # bytes


@dataclass(frozen=True, kw_only=True)
class Words:
    """How each token was written: numbers into a table of spellings."""

    numbers: NDArray[np.int64]
    spellings: Sequence[bytes]


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Several documents on their way to a shard, joined end to end."""

    tokens: NDArray[Any]
    spans: NDArray[np.int64]
    """Tokens of each document with its separator; 0 for a text without a single token."""
    sentences: NDArray[np.int64]
    """Positions in `tokens` where sentences begin."""
    sizes: NDArray[np.int64]
    """UTF-8 bytes of each document that has tokens."""
    fingerprints: bytes
    """A short digest of each document, joined."""
    unknown: NDArray[np.int64]
    """[documents, 2]: unknown tokens of each document, and the UTF-8 bytes of the text they stand for."""
    words: Words | None = None
    middles: NDArray[np.int64] | None = None
    """Positions in `tokens` where the target of each pair begins."""
    pictures: NDArray[np.uint8] | None = None
    """[documents, side, side, 3], for each document that has tokens."""

    def part(self, first: int, last: int) -> Pack:
        """The documents from `first` up to `last`."""
        start, stop = int(self.spans[:first].sum()), int(self.spans[:last].sum())
        low, high = np.searchsorted(self.sentences, (start, stop))
        words = self.words and Words(numbers=self.words.numbers[start:stop], spellings=self.words.spellings)
        some = slice(*np.count_nonzero(self.spans[:first]) + np.array([0, np.count_nonzero(self.spans[first:last])]))
        return Pack(tokens=self.tokens[start:stop], spans=self.spans[first:last],
                    sentences=self.sentences[low:high] - start, sizes=self.sizes[first:last],
                    unknown=self.unknown[first:last],
                    fingerprints=self.fingerprints[first * FINGERPRINT : last * FINGERPRINT], words=words,
                    middles=None if self.middles is None else self.middles[some] - start,
                    pictures=None if self.pictures is None else self.pictures[some])


def fingerprint(data: bytes) -> bytes:
    """A short digest of one document's text."""
    return hashlib.sha256(data).digest()[:FINGERPRINT]


def separator_of(tokenizer: Tokenizer) -> int:
    """The id that stands between documents."""
    if tokenizer.end is None:
        raise MeristemError("the tokenizer has no end token ([SEP], </s> or <|endoftext|>) to put between documents; "
                            "train one here (tokenizer.kind) or add the token to its file")
    return tokenizer.end


def encode(texts: Sequence[str], tokenizer: Tokenizer, *, keep_words: bool = False) -> Pack:
    """Tokens, sentence starts and sizes of a batch of documents."""
    starts = [boundaries(text) for text in texts]
    if keep_words:
        pairs, words = _with_words(texts, starts, tokenizer)
    else:
        pairs, words = tokenizer.ids_with_boundaries(list(texts), starts), None
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    counts = np.array([len(ids) for ids, _ in pairs], dtype=np.int64)
    spans = np.where(counts > 0, counts + 1, 0)
    return Pack(
        tokens=_joined([ids for ids, _ in pairs], counts, separator_of(tokenizer), dtype_for(tokenizer.size)),
        spans=spans, sentences=_sentences([begins for _, begins in pairs], counts, spans),
        sizes=np.array([len(item) for item in data], dtype=np.int64) * (counts > 0),
        fingerprints=b"".join(map(fingerprint, data)), words=words,
        unknown=unknown_tokens(texts, [ids for ids, _ in pairs], tokenizer),
    )


def unknown_tokens(texts: Sequence[str], ids: Sequence[NDArray[Any]], tokenizer: Tokenizer) -> NDArray[np.int64]:
    """[texts, 2]: how many tokens of each text are the unknown one, and the bytes of the text behind them."""
    out = np.zeros((len(texts), 2), np.int64)
    if tokenizer.unknown is None:
        return out
    out[:, 0] = [np.count_nonzero(one == tokenizer.unknown) for one in ids]
    some = np.flatnonzero(out[:, 0]).tolist()
    if not some:  # a blank tokenizer, which costs are counted with, has no texts to encode
        return out
    for at, encoding in zip(some, tokenizer.encode_many([texts[at] for at in some]), strict=True):
        spans = encoding.offsets[encoding.ids == tokenizer.unknown].tolist()
        out[at, 1] = sum(len(texts[at][start:stop].encode("utf-8", "surrogatepass")) for start, stop in spans)
    return out


def _joined(parts: Sequence[NDArray[Any]], counts: NDArray[np.int64], separator: int, dtype: str) -> NDArray[Any]:
    """The documents end to end, a separator after each."""
    kept = counts[counts > 0]
    ids = np.concatenate([*parts, np.zeros(0, np.int32)]).astype(dtype)
    return np.insert(ids, np.cumsum(kept), np.array(separator, dtype))


def _sentences(parts: Sequence[NDArray[Any]], counts: NDArray[np.int64], spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sentence starts in the joined stream: each once, and none where a text has no more tokens."""
    each = [len(part) for part in parts]
    inside = np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)
    kept = inside < np.repeat(counts, each)
    begins = (inside + np.repeat(np.cumsum(spans) - spans, each))[kept]
    return begins[np.diff(begins, prepend=-1) > 0]


def _with_words(texts: Sequence[str], starts: Sequence[NDArray[np.int64]],
                tokenizer: Tokenizer) -> tuple[list[tuple[NDArray[Any], NDArray[np.int64]]], Words]:
    """Ids and sentence starts as ever, and each token's own bytes through its offsets."""
    table: dict[str, int] = {"": 0}
    numbers: list[int] = []
    pairs = []
    for text, begins, encoding in zip(texts, starts, tokenizer.encode_many(list(texts)), strict=True):
        pairs.append((encoding.ids, np.searchsorted(encoding.offsets[:, 0], begins)))
        numbers += [table.setdefault(text[start:stop], len(table)) for start, stop in encoding.offsets.tolist()]
        numbers += [0] if len(encoding.ids) else []
    spellings = [word.encode("utf-8", "surrogatepass") for word in table]
    return pairs, Words(numbers=np.array(numbers, dtype=np.int64), spellings=spellings)
