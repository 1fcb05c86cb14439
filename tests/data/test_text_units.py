"""Joining words into a text, and locating words in the text they came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.data.text_units import join_words, locate_words, split_at_spaces

word = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["A", "small", "boat", "."], "A small boat ."),
        (["我", "爱", "北京"], "我爱北京"),
        (["我", "用", "iPhone", "很", "好", "看"], "我用 iPhone 很好看"),
        (["我", "用", "i", "P", "a", "d", "。"], "我用iPad。"),
        (["👍🏽", "é"], "👍🏽 é"),
    ],
)
def test_spaces_but_not_between_ideographs(words, text):
    assert join_words(words)[0] == text


@given(st.lists(word, min_size=1, max_size=12))
def test_offsets_are_exact(words):
    text, offsets = join_words(words)
    assert [text[start:stop] for start, stop in offsets] == words
    word_offsets = locate_words(words, text)
    assert word_offsets is not None and [text[start:stop] for start, stop in word_offsets] == words


@given(st.text(max_size=40))
def test_a_text_is_split_at_white_space(text):
    words, offsets = split_at_spaces(text)
    assert list(words) == [text[start:stop] for start, stop in offsets]
    assert "".join(words) == "".join(text.split())


def test_words_that_are_not_there_are_not_found():
    assert locate_words(["a", "b"], "a c b") is None
    assert locate_words(["a", "b"], "a") is None
    assert locate_words(["do", "n't"], "don't") == ((0, 2), (2, 5))
