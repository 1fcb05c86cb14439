"""Character ids of words, as ELMo reads them: bytes between begin and end marks, cut or padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer

MAX_WORD_CHARS = 50  # per word, marks included (Peters et al. 2018)
BOS_CHAR, EOS_CHAR, BOW_CHAR, EOW_CHAR, PAD_CHAR = range(256, 261)  # ids after those of the 256 bytes
CHAR_VOCAB_SIZE = 261
MAX_WORD_BYTES = MAX_WORD_CHARS - 2

CharIds = NDArray[np.int16]


def word_char_ids(words: Sequence[bytes]) -> CharIds:
    """[words, MAX_WORD_CHARS]: each word's first bytes between its marks, then padding."""
    truncated = [word[:MAX_WORD_BYTES] for word in words]
    sizes = np.array([len(word) for word in truncated], np.int64)
    char_ids = np.full((len(truncated), MAX_WORD_CHARS), PAD_CHAR, np.int16)
    char_ids[:, 0] = BOW_CHAR
    char_ids[:, 1:-1][np.arange(MAX_WORD_BYTES) < sizes[:, None]] = np.frombuffer(b"".join(truncated), np.uint8)
    char_ids[np.arange(len(truncated)), sizes + 1] = EOW_CHAR
    return char_ids


def token_char_ids(tokens: NDArray[Any], words: Sequence[bytes], tokenizer: Tokenizer) -> CharIds:
    """[tokens, MAX_WORD_CHARS]: character ids of tokens from their spellings; start and end tokens have their own."""
    char_ids = word_char_ids(words)
    for token, char in ((tokenizer.start, BOS_CHAR), (tokenizer.end, EOS_CHAR)):
        if token is not None:
            char_ids[tokens == token] = PAD_CHAR
            char_ids[tokens == token, :3] = BOW_CHAR, char, EOW_CHAR
    return char_ids


def surface_forms(text: str, offsets: NDArray[Any]) -> list[bytes]:
    """The UTF-8 bytes of each token as the text spells it, whether or not the word is in the vocabulary."""
    return [text[first:last].encode("utf-8", "surrogatepass") for first, last in offsets.tolist()]


class TokenCharIds:
    """Character ids of token ids, spelled as in the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, ids: NDArray[Any]) -> CharIds:
        """[...] → [..., MAX_WORD_CHARS]."""
        flat = np.asarray(ids).reshape(-1)
        words = [self.tokenizer.id_to_token(int(token)).encode("utf-8", "surrogatepass") for token in flat]
        return token_char_ids(flat, words, self.tokenizer).reshape(*np.shape(ids), MAX_WORD_CHARS)
