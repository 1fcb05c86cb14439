from __future__ import annotations

import pytest

from meristem.training.trying import _quoted, first_words, with_gap


@pytest.mark.parametrize(
    ("text", "gap", "words"),
    [
        ("The cat sat on the mat.", "The cat sat [MASK] the mat.", "The cat sat"),
        ("春眠不觉晓，处处闻啼鸟。", "春眠不觉晓，[MASK]处闻啼鸟。", "春眠不觉晓，"),
        ("Yes", "Y[MASK]s", "Yes"),
    ],
)
def test_examples_are_of_the_texts_own_language(text: str, gap: str, words: str) -> None:
    assert with_gap(text) == gap
    assert first_words(text) == words


def test_what_a_shell_would_read_otherwise_is_quoted() -> None:
    assert _quoted("it's plain") == '"it\'s plain"'
    assert _quoted('say "$HOME"') == "'say \"$HOME\"'"
