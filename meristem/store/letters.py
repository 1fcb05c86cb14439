"""Words as the letters a character model reads: their bytes between two marks, cut or filled up to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer

LETTERS = 50  # of a word, marks included (Peters et al. 2018)
TEXT_BEGINS, TEXT_ENDS, WORD_BEGINS, WORD_ENDS, BLANK = range(256, 261)  # after the 256 bytes
ALPHABET = 261
ROOM = LETTERS - 2

Letters = NDArray[np.int16]


def letters_of(words: Sequence[bytes]) -> Letters:
    """[words, LETTERS]: each word's first bytes between its marks, then blanks."""
    cut = [word[:ROOM] for word in words]
    sizes = np.array([len(word) for word in cut], np.int64)
    out = np.full((len(cut), LETTERS), BLANK, np.int16)
    out[:, 0] = WORD_BEGINS
    out[:, 1:-1][np.arange(ROOM) < sizes[:, None]] = np.frombuffer(b"".join(cut), np.uint8)
    out[np.arange(len(cut)), sizes + 1] = WORD_ENDS
    return out


def spelled(tokens: NDArray[Any], words: Sequence[bytes], tokenizer: Tokenizer) -> Letters:
    """The letters of tokens that were written so; start and end tokens are marks of their own, whatever was written."""
    out = letters_of(words)
    for token, mark in ((tokenizer.start, TEXT_BEGINS), (tokenizer.end, TEXT_ENDS)):
        if token is not None:
            out[tokens == token] = BLANK
            out[tokens == token, :3] = WORD_BEGINS, mark, WORD_ENDS
    return out


def written_words(text: str, offsets: NDArray[Any]) -> list[bytes]:
    """How each token of a text is written there, whether or not its word is in the vocabulary."""
    return [text[first:last].encode("utf-8", "surrogatepass") for first, last in offsets.tolist()]


class TokenLetters:
    """The letters of token ids as the vocabulary spells them; it travels with a model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, ids: NDArray[Any]) -> Letters:
        """[...] → [..., LETTERS]."""
        flat = np.asarray(ids).reshape(-1)
        words = [self.tokenizer.token(int(token)).encode("utf-8", "surrogatepass") for token in flat]
        return spelled(flat, words, self.tokenizer).reshape(*np.shape(ids), LETTERS)
