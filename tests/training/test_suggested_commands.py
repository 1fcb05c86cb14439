"""Suggested commands: examples in scripts with and without spaces, and shell quoting."""

from __future__ import annotations

import pytest

from meristem.training.report.suggested_commands import _shell_quote, mask_middle, prompt_start


@pytest.mark.parametrize(
    ("text", "gap", "words"),
    [
        ("The cat sat on the mat.", "The cat sat [MASK] the mat.", "The cat sat"),
        ("春眠不觉晓，处处闻啼鸟。", "春眠不觉晓，[MASK]处闻啼鸟。", "春眠不觉晓，"),
        ("Yes", "Y[MASK]s", "Yes"),
    ],
)
def test_examples_are_of_the_texts_own_language(text: str, gap: str, words: str) -> None:
    assert mask_middle(text) == gap
    assert prompt_start(text) == words


def test_what_a_shell_would_read_otherwise_is_quoted() -> None:
    assert _shell_quote("it's plain") == '"it\'s plain"'
    assert _shell_quote('say "$HOME"') == "'say \"$HOME\"'"
