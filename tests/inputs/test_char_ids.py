"""Character ids of words."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.inputs.char_ids import (
    BOS_CHAR,
    BOW_CHAR,
    CHAR_VOCAB_SIZE,
    EOS_CHAR,
    EOW_CHAR,
    MAX_WORD_CHARS,
    PAD_CHAR,
    word_char_ids,
)
from meristem.inputs.char_ids import token_char_ids as spell
from meristem.tokenizers.tokenizer import Tokenizer


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text(max_size=40), max_size=8))
def test_char_ids_are_the_bytes_of_a_word_between_marks(words: list[str]) -> None:
    letters = word_char_ids([word.encode() for word in words])
    assert letters.shape == (len(words), MAX_WORD_CHARS)
    for word, row in zip(words, letters.tolist(), strict=True):
        data = list(word.encode()[:48])
        assert row == [BOW_CHAR, *data, EOW_CHAR] + [PAD_CHAR] * (48 - len(data))
        assert max(row) < CHAR_VOCAB_SIZE


def test_start_and_end_are_marks_of_their_own(tokenizer: Tokenizer) -> None:
    tokens = np.array([tokenizer.start, 7, tokenizer.end])
    letters = spell(tokens, [b"[CLS]", b"c", b""], tokenizer)
    assert letters[0, :4].tolist() == [BOW_CHAR, BOS_CHAR, EOW_CHAR, PAD_CHAR] and (letters[0, 3:] == PAD_CHAR).all()
    assert letters[1, :4].tolist() == [BOW_CHAR, ord("c"), EOW_CHAR, PAD_CHAR]
    assert letters[2, :4].tolist() == [BOW_CHAR, EOS_CHAR, EOW_CHAR, PAD_CHAR] and (letters[2, 3:] == PAD_CHAR).all()
