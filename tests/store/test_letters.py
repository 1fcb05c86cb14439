from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.store.letters import ALPHABET, BLANK, LETTERS, TEXT_BEGINS, TEXT_ENDS, WORD_BEGINS, WORD_ENDS, letters_of
from meristem.store.letters import spelled as spell
from meristem.tokenizers.tokenizer import Tokenizer


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text(max_size=40), max_size=8))
def test_letters_are_the_bytes_of_a_word_between_marks(words: list[str]) -> None:
    letters = letters_of([word.encode() for word in words])
    assert letters.shape == (len(words), LETTERS)
    for word, row in zip(words, letters.tolist(), strict=True):
        data = list(word.encode()[:48])
        assert row == [WORD_BEGINS, *data, WORD_ENDS] + [BLANK] * (48 - len(data))
        assert max(row) < ALPHABET


def test_start_and_end_are_marks_of_their_own(tokenizer: Tokenizer) -> None:
    tokens = np.array([tokenizer.start, 7, tokenizer.end])
    letters = spell(tokens, [b"[CLS]", b"c", b""], tokenizer)
    assert letters[0, :4].tolist() == [WORD_BEGINS, TEXT_BEGINS, WORD_ENDS, BLANK] and (letters[0, 3:] == BLANK).all()
    assert letters[1, :4].tolist() == [WORD_BEGINS, ord("c"), WORD_ENDS, BLANK]
    assert letters[2, :4].tolist() == [WORD_BEGINS, TEXT_ENDS, WORD_ENDS, BLANK] and (letters[2, 3:] == BLANK).all()
