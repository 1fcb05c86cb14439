"""Tokenizer settings."""

import pytest

from meristem.config.errors import RecipeError
from meristem.config.validation import build_settings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer_kind import TOKENIZER_KINDS


def test_every_kind_is_a_file_with_its_class():
    kinds = TokenizerSettings.model_json_schema()["properties"]["kind"]["enum"]
    assert set(kinds) == set(TOKENIZER_KINDS) == {"bpe", "characters", "unigram", "wordpiece", "words"}
    for kind in kinds:
        assert TOKENIZER_KINDS[kind](TokenizerSettings(kind=kind, vocab_size=300)).learn


def test_bpe_must_have_every_byte():
    with pytest.raises(RecipeError, match="at least 261"):
        build_settings(TokenizerSettings, {"kind": "bpe", "vocab_size": 260}, "tokenizer")
    assert build_settings(TokenizerSettings, {"kind": "characters", "vocab_size": 64}, "tokenizer").vocab_size == 64


def test_the_alphabet_is_half_the_size_unless_set():
    assert TokenizerSettings(vocab_size=1000).alphabet_limit == 500
    assert TokenizerSettings(vocab_size=1000, alphabet_size=70).alphabet_limit == 70
