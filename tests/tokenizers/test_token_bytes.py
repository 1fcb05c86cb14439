"""Decoding of single tokens to bytes."""

import pytest
import tokenizers as library

from meristem.tokenizers.token_bytes import (
    ByteLevelSpelling,
    CharacterSpelling,
    MetaspaceSpelling,
    StreamDecoder,
    WordPieceSpelling,
)


def join_tokens(spelling, tokens):
    stream = StreamDecoder(spelling, tokens, frozenset())
    return "".join(map(stream.push, range(len(tokens)))) + stream.finish()


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["un", "##afford", "##able", "!", "Yes", "?"], "unaffordable! Yes?"),
        (["don", "'", "t", ",", "he", "said", "."], "don't, he said."),
        (["你", "好", "，", "世", "界", "。"], "你好，世界。"),
        (["在", "GitHub", "上", "see", "2", "boats"], "在GitHub上see 2 boats"),
        (["##", "1"], "## 1"),
    ],
)
def test_wordpiece_spacing(tokens, text):
    assert join_tokens(WordPieceSpelling(), tokens) == text


def test_wordpiece_spacing_agrees_with_berts_decoder_on_english():
    tokens = ["The", "old", "garden", "##er", "was", "there", ",", "was", "he", "?", "(", "No", "!", ")", "-", "."]
    assert join_tokens(WordPieceSpelling(), tokens) == library.decoders.WordPiece().decode(tokens)


def test_every_byte_has_its_character():
    spelling = ByteLevelSpelling()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    assert sorted(spelling.to_bytes(character, None) for character in alphabet) == [
        bytes([byte]) for byte in range(256)
    ]
    assert join_tokens(spelling, ["Ġthe", "Ċ", "ä½", "ł"]) == " the\n你"
    assert join_tokens(spelling, ["<｜end｜>"]) == "<｜end｜>"


def test_metaspace():
    assert join_tokens(MetaspaceSpelling(), ["▁The", "▁old", "er", "▁", "<0xE4>", "<0xBD>", "<0xA0>"]) == "The older 你"
    assert join_tokens(CharacterSpelling(), list("a b\n")) == "a b\n"
