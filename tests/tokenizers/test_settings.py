import pytest

from meristem.errors import RecipeError
from meristem.settings import build, find, names
from meristem.tokenizers.settings import TokenizerSettings


def test_every_kind_is_a_file_with_its_class():
    kinds = TokenizerSettings.model_fields["kind"].annotation.__args__
    assert set(kinds) == set(names("tokenizers.kinds"))
    for kind in kinds:
        assert find("tokenizers.kinds", kind)(TokenizerSettings(kind=kind, size=300)).learn


def test_bpe_must_hold_every_byte():
    with pytest.raises(RecipeError, match="at least 261"):
        build(TokenizerSettings, {"kind": "bpe", "size": 260}, "tokenizer")
    assert build(TokenizerSettings, {"kind": "characters", "size": 64}, "tokenizer").size == 64


def test_alphabet_is_half_the_size_unless_said():
    assert TokenizerSettings(size=1000).characters == 500
    assert TokenizerSettings(size=1000, alphabet=70).characters == 70
