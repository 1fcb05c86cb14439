"""Tokenized texts, and the backbone inputs made of them with the positions of the texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meristem.inputs.batch import Array
from meristem.tokenizers.tokenizer import Encoding


def truncate_pair(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Tokens kept of each text: the longer one is truncated first, as in the tokenizers library."""
    if first + second <= max_tokens:
        return first, second
    shorter = min(first, second, max_tokens // 2)
    return (max_tokens - shorter, shorter) if first > second else (shorter, max_tokens - shorter)


@dataclass(frozen=True, kw_only=True)
class TokenizedText:
    """A tokenized text without special tokens: ids, offsets, and the text itself for character inputs."""

    ids: Array
    offsets: Array
    text: str

    def slice(self, start: int, stop: int) -> TokenizedText:
        """The tokens [start, stop)."""
        return TokenizedText(ids=self.ids[start:stop], offsets=self.offsets[start:stop], text=self.text)

    @classmethod
    def from_ids(cls, ids: Array) -> TokenizedText:
        """Token ids alone."""
        return cls(ids=ids.astype(np.int64), offsets=np.zeros((0, 2), np.int64), text="")

    @classmethod
    def from_encoding(cls, text: str, encoding: Encoding) -> TokenizedText:
        """From the encoding of a tokenizer."""
        return cls(ids=encoding.ids.astype(np.int64), offsets=encoding.offsets, text=text)


@dataclass(frozen=True, kw_only=True)
class EncodedInput:
    """The backbone's inputs for one or two texts, and the positions of the texts in them."""

    inputs: dict[str, Array]
    """Keyword arguments of the backbone's forward, without a batch dimension."""
    texts: tuple[TokenizedText, ...]
    text_starts: tuple[int, ...]
    """The position of each text's first token."""
    summary_position: int
    """The position of the summary state: the [CLS] token in front (BERT) or at the end (XLNet), or the last token."""
    num_truncated: int = 0
    """Tokens of the texts that were cut off."""

    @property
    def ids(self) -> Array:
        """Token ids that the encoder reads, or the decoder of a model without encoder."""
        return self.inputs.get("source", self.inputs["tokens"])

    @property
    def num_tokens(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.ids)

    @property
    def offsets(self) -> Array:
        """[T, 2] character span of each token in its text; (0, 0) for special tokens."""
        out = np.zeros((self.num_tokens, 2), np.int64)
        for start, text in zip(self.text_starts, self.texts, strict=True):
            out[start : start + len(text.ids)] = text.offsets
        return out
